"""Lookaround at the ends of a pattern, as patterns of their own that are found or are not.

`^(?!a)b` is found where `^b` is and `^(?:a)` is not; `^((?!a).)*$` where `^.*$` is and `a` is not.
Knows only where groups begin and end; what cannot be taken apart stays as it is, to be refused by
whoever reads it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .ecma import read_pattern
from .strings import holds

_AHEAD = {"(?=": True, "(?!": False}
_BEHIND = {"(?<=": True, "(?<!": False}
_REPEATS = ("*", "+", "?", "{")
_NO_ATOMS = frozenset("()|*+?{}^$.")
_TEMPERED = re.compile(  # ((?!x).)*$, in a group with its own ^ or not
    r"(?P<group>\(\^?)?"
    r"\((?:\?:)?\(\?!(?P<inner>(?:[^()\[\]\\|^$]|\\[^bBk1-9])+)\)\.\)(?P<times>[*+])\$"
    r"(?(group)\)(?:\.\*)?\$?)"
)
_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]?|.", re.DOTALL)  # a class counts as one
_NO_ESCAPES = frozenset("bBk123456789pPxuc")


class Parts(NamedTuple):
    """Patterns that are all found in a text, and patterns of which none is."""

    found: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def parts_of(source: str) -> Parts:
    """A pattern without the lookaround at its ends."""
    groups = _groups(source)
    if not source.startswith("^") or groups is None:
        return Parts((source,))
    found, unlike = list[str](), list[str]()
    prefix, position = "^", 1
    while position < len(source):
        end = groups.get(position)
        is_wanted = _AHEAD.get(source[position : position + 3])
        if end is None or is_wanted is None:
            size = _atom(source, position)
            if not size:
                break
            prefix, position = prefix + source[position : position + size], position + size
            continue
        if source[end + 1 : end + 2] in _REPEATS:
            return Parts((source,))
        inner = f"{prefix}(?:{source[position + 3 : end]})"
        (found if is_wanted else unlike).append(inner)
        position = end + 1
    if prefix == "^" and (tempered := _TEMPERED.fullmatch(source, position)):
        return Parts((f"^.{tempered['times']}$", *found), (*unlike, tempered["inner"]))
    rest = _without_end(source, position, groups, found, unlike)
    return Parts((f"{prefix}{rest}", *found), tuple(unlike))


def check_pattern(source: str) -> None:
    """Raise InvalidSchema for a pattern that cannot be honoured."""
    parts = parts_of(source)
    for part in parts.found:
        read_pattern(part)
    for part in parts.unlike:
        read_pattern(part, is_wide=True)


def is_in(source: str, text: str) -> bool:
    """Whether a pattern is found in a text, by both dialects."""
    parts = parts_of(source)
    return all(holds(read_pattern(part), text) for part in parts.found) and not any(
        holds(read_pattern(part, is_wide=True), text) for part in parts.unlike
    )


def _without_end(
    source: str, start: int, groups: dict[int, int], found: list[str], unlike: list[str]
) -> str:
    """What follows the start, without a lookbehind before the `$` at its end."""
    rest = source[start:]
    if not rest.endswith(")$"):
        return rest
    opened = next((at for at, end in groups.items() if end == len(source) - 2), start)
    opening = next((it for it in _BEHIND if source.startswith(it, opened)), None)
    if opened < start or opening is None:
        return rest
    inner = f"(?:{source[opened + len(opening) : -2]})$"
    (found if _BEHIND[opening] else unlike).append(inner)
    return f"{source[start:opened]}$"


def _atom(source: str, position: int) -> int:
    """The size of what stands for one character here, once; 0: something else does."""
    piece = _PIECE.match(source, position)
    assert piece is not None
    if piece[0][0] == "\\":
        is_atom = piece[0][1:] not in ("", *_NO_ESCAPES)
    else:
        is_atom = piece[0] not in _NO_ATOMS
    return 0 if not is_atom or source[piece.end() :][:1] in _REPEATS else len(piece[0])


def _groups(source: str) -> dict[int, int] | None:
    """Where each outermost group begins and ends; None where alternatives stand beside them, or
    where groups are not closed."""
    ends, opened = dict[int, int](), list[int]()
    for piece in _PIECE.finditer(source):
        if piece[0] == "(":
            opened.append(piece.start())
        elif piece[0] in (")", "|") and not opened:
            return None
        elif piece[0] == ")":
            start = opened.pop()
            if not opened:
                ends[start] = piece.start()
    return None if opened else ends
