"""Large bodies of JSON, parsed in pieces: other threads run between them.

`json.loads` holds the interpreter lock until it is done. A list or an object that is larger than a
piece is cut at its commas, and a text that is larger between its characters. What comes out is what
`json.loads` returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.api.protocol import InvalidCall
from .runtime import Limits
from .structure import COLON, COMMA, SLICE, Outline, outline, skipped
from .texts import check_body, check_given, has_sign
from .workers import SMALL, Pace

_PIECE = 1 << 15  # bytes: half a millisecond for small objects
_HIGH = re.compile(rb"\\u[dD][89abAB]..", re.DOTALL)  # the first half of a pair of escapes


def check_json(body: bytes, limits: Limits) -> None:
    """Raise InvalidCall for a body of JSON that has a lone surrogate or, where it is large, exceeds
    the limits. What is not JSON is for others to refuse."""
    if len(body) <= SMALL:
        check_body(body)
        return
    rest = Pace().rest
    try:
        found = outline(body, limits, rest)
        given = parsed(found, rest) if has_sign(found.body) else None
    except InvalidCall:
        raise
    except ValueError:
        return
    check_given(given)


def parsed(found: Outline, rest: Callable[[], object]) -> Any:
    """The value of a body. rest: called after every piece. Raises ValueError; JSONDecodeError where
    it is not JSON, its place counted in characters."""
    return _Parser(found, rest).value(0, len(found.body), 1)


@dataclass(frozen=True, slots=True)
class _Parser:
    found: Outline
    rest: Callable[[], object]

    def value(self, start: int, end: int, level: int) -> Any:
        """The value between two places of the body, which has this level inside."""
        body = self.found.body
        if end - start <= _PIECE:
            return self._loaded(start, end)
        start = skipped(body, start, end)
        end = _trimmed(body, start, end)
        if end - start <= _PIECE:
            return self._loaded(start, end)
        match body[start : start + 1], body[end - 1 : end]:
            case b"[", b"]":
                return self._list(start + 1, end - 1, level)
            case b"{", b"}":
                return self._object(start + 1, end - 1, level)
            case b'"', b'"':
                return self._text(start + 1, end - 1)
        raise self._error("Expecting value", start)

    def _list(self, start: int, end: int, level: int) -> list[Any]:
        """The items between the brackets of a list."""
        items: list[Any] = []
        if skipped(self.found.body, start, end) == end:
            return items
        for first, last in self._groups(start, end, level):
            if last - first > _PIECE:
                items.append(self.value(first, last, level + 1))
                continue
            found = self._loaded(first, last, b"[", b"]")
            if not found:
                raise self._error("Expecting value", first)
            items += found
        return items

    def _object(self, start: int, end: int, level: int) -> dict[str, Any]:
        """The members between the brackets of an object."""
        members: dict[str, Any] = {}
        if skipped(self.found.body, start, end) == end:
            return members
        for first, last in self._groups(start, end, level):
            if last - first > _PIECE:
                colon = self.found.at(COLON, level, first, last)[:1]
                if not len(colon):
                    raise self._error("Expecting ':' delimiter", first)
                key = self.value(first, int(colon[0]), level + 1)
                if not isinstance(key, str):
                    raise self._error("Expecting property name enclosed in double quotes", first)
                members[key] = self.value(int(colon[0]) + 1, last, level + 1)
                continue
            found = self._loaded(first, last, b"{", b"}")
            if not found:
                raise self._error("Expecting property name enclosed in double quotes", first)
            members.update(found)
        return members

    def _groups(self, start: int, end: int, level: int) -> Iterator[tuple[int, int]]:
        """Where to cut: one item after another, as many as a piece has, or one that is larger."""
        ends = np.append(self.found.at(COMMA, level, start, end), end)
        at = 0
        while at < len(ends):
            last = max(at, int(np.searchsorted(ends, start + _PIECE, "right")) - 1)
            yield start, int(ends[last])
            start, at = int(ends[last]) + 1, last + 1

    def _text(self, start: int, end: int) -> str:
        """The characters between the quotes of a text."""
        parts = []
        while start < end:
            cut = _cut(self.found.body, start, min(start + _PIECE, end), end)
            parts.append(self._loaded(start, cut, b'"', b'"'))
            start = cut
        return "".join(parts)

    def _loaded(self, start: int, end: int, left: bytes = b"", right: bytes = b"") -> Any:
        """The value of a piece between these brackets."""
        text = (left + self.found.body[start:end] + right).decode("utf-8", "surrogatepass")
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise self._error(error.msg, start, error.pos - len(left)) from None
        finally:
            self.rest()

    def _error(self, text: str, start: int, more: int = 0) -> json.JSONDecodeError:
        """An error so many characters behind a place."""
        num = max(0, more)
        for at in range(0, start, SLICE):
            part = np.frombuffer(self.found.body, np.uint8, min(SLICE, start - at), at)
            num += int(np.count_nonzero((part & 0xC0) != 0x80))  # not within a character
        return json.JSONDecodeError(text, "", num)


def _trimmed(body: bytes, start: int, end: int) -> int:
    """The end of these bytes without the blanks there."""
    while start < end:
        part = body[max(start, end - SLICE) : end]
        if found := part.rstrip():
            return end - len(part) + len(found)
        end -= len(part)
    return end


def _cut(body: bytes, start: int, cut: int, end: int) -> int:
    """Where to cut a text that goes on at `start`: at `cut`, or some bytes before it, so that no
    character is divided, and no pair of escapes that is one character."""
    if cut == end:
        return end
    wanted = cut
    for _ in range(2):  # the escape that is cut, and the half of a pair before it
        last = body.rfind(b"\\", start, cut)
        run = body[start : last + 1]
        if (len(run) - len(run.rstrip(b"\\"))) % 2 == 0:
            break
        size = 6 if body[last + 1 : last + 2] == b"u" else 2
        if last + size > cut or (last + size == cut and _HIGH.match(body, last)):
            cut = last
    while cut > start and body[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut if cut > start else wanted
