"""Texts that no encoding holds, as they have lone surrogates: refused by field and position.

They come of JSON that was cut inside an escaped character, and of bytes that were decoded loosely.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.api.protocol import InvalidCall, Shown

_SHOWN = 20  # characters on either side of it


def check_text(text: str, field: str, kind: str = "text") -> None:
    """Raise InvalidCall for a lone surrogate in a text. kind: of text, in a word."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        allowed = f"{kind} without lone surrogates (there is one at position {error.start})"
        raise InvalidCall(field, _around(text, error.start), allowed) from None


def check_texts(value: object, field: str = "") -> None:
    """Raise InvalidCall for the first lone surrogate in the texts and keys of a JSON value. field:
    what the value lies in."""
    todo: list[tuple[object, str]] = [(value, field)]
    while todo:
        found, field = todo.pop()
        if isinstance(found, str):
            check_text(found, field)
        elif isinstance(found, Mapping):
            for key in found:
                check_text(str(key), field or "body", "keys")
            lead = f"{field}." if field else ""
            todo += [
                (it, f"{lead}{key}") for key, it in reversed([*found.items()]) if _holds_text(it)
            ]
        elif isinstance(found, list | tuple):
            parts = reversed([*enumerate(found)])
            todo += [(it, f"{field}[{number}]") for number, it in parts if _holds_text(it)]


def _holds_text(value: object) -> bool:
    return isinstance(value, str | list | tuple | Mapping)


def _around(text: str, position: int) -> Shown:
    """What a text has beside a position, quoted."""
    start, end = max(0, position - _SHOWN), position + _SHOWN + 1
    dots = "..." * (start > 0), "..." * (end < len(text))
    return Shown(repr(f"{dots[0]}{text[start:end]}{dots[1]}"))
