"""What a large body of JSON has, counted in its bytes before any of it is parsed.

`json.loads` holds the interpreter lock until it is done, and makes an object of every value: a body
of 16 MiB would stop the whole server for a second, and take a gigabyte. Counting takes NumPy a
fraction of that, in slices and for the most part without the lock. It ends at the first slice that
exceeds a limit.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....core.api.protocol import InvalidCall, Shown
from .runtime import Limits

SLICE = 1 << 16
_MOST_DIGITS = 1024  # of a number
_MOST_LEVELS = 1 << 14
_QUOTE, _BACKSLASH, COMMA, COLON = b'"\\,:'
_BLANKS = b" \t\r\n"
_IS_SIGN, _IS_MARK = np.zeros(256, bool), np.zeros(256, bool)
_STEP = np.zeros(256, np.int8)
_IS_SIGN[[*b",:[]{}"]] = True
_IS_MARK[[*b',:[]{}"\\']] = True
_STEP[[*b"[{"]] = 1
_STEP[[*b"]}"]] = -1
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


class Field(NamedTuple):
    """A field of a body. start: its value's first two bytes that are not blank. num_items: of its
    list or object; 1 for anything else."""

    name: str
    start: bytes
    num_items: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The structure of a body of JSON, outside of its texts.

    body: in UTF-8. values: at most so many, keys of objects included. containers: lists and
    objects. depth: of these within one another. places: of the commas and colons, in order. signs:
    which of them each is. levels: how many containers each lies in.
    """

    body: bytes
    values: int
    containers: int
    depth: int
    places: Places
    signs: Bytes
    levels: npt.NDArray[np.int16]

    def at(self, sign: int, level: int, start: int, end: int) -> Places:
        """The places of a sign between these two, of one level."""
        first, last = np.searchsorted(self.places, (start, end))
        is_it = (self.levels[first:last] == level) & (self.signs[first:last] == sign)
        found: Places = self.places[first:last][is_it]
        return found

    @property
    def num_fields(self) -> int:
        """How many fields a body has that is an object; of any other, 0."""
        start = skipped(self.body, 0, len(self.body))
        is_object = self.body[start : start + 1] == b"{"
        return len(self.at(COLON, 1, 0, len(self.body))) if is_object else 0

    def fields(self) -> Iterator[Field]:
        """The fields of a body that is an object; of any other, nothing."""
        if not self.num_fields:
            return
        body, size = self.body, len(self.body)
        start, within = body.index(b"{"), self.at(COMMA, 2, 0, size)
        ends = self.at(COMMA, 1, 0, size)
        for colon in self.at(COLON, 1, 0, size).tolist():
            before = np.searchsorted(ends, colon)
            start = int(ends[before - 1]) if before else start
            end = int(ends[before]) if before < len(ends) else size
            num_items = 1 + int(np.diff(np.searchsorted(within, (colon, end)))[0])
            yield Field(_name(body[start + 1 : colon]), _start(body, colon + 1, end), num_items)


def is_json(content_type: str) -> bool:
    """Whether a body of this content type is JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def outline(body: bytes, limits: Limits, rest: Callable[[], object]) -> Outline:
    """What a body of JSON has, in the encoding that `json.loads` finds. rest: called after every
    slice. Raises InvalidCall for what exceeds the limits, and ValueError for what is no text. What
    is not JSON is for others to refuse."""
    body = _as_utf8(body, rest)
    scan = _Scan(limits)
    for start in range(0, len(body), SLICE):
        scan.add(np.frombuffer(body, np.uint8, min(SLICE, len(body) - start), start), start)
        rest()
    return scan.outline(body)


def skipped(body: bytes, start: int, end: int) -> int:
    """The first place between these two that is not blank; `end` where all are."""
    for at in range(start, end, SLICE):
        part = body[at : min(at + SLICE, end)]
        if found := part.lstrip(_BLANKS):
            return at + len(part) - len(found)
    return end


def _start(body: bytes, start: int, end: int) -> bytes:
    """The first two bytes that are not blank."""
    first = skipped(body, start, end)
    second = skipped(body, first + 1, end)
    return body[first : first + 1] + body[second : min(second + 1, end)]


def _name(text: bytes) -> str:
    """The name of a field; "body" where it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, str) else "body"


class _Scan:
    """Takes the slices of a body in order. Mutable."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._in_text = self._is_escaped = False
        self._values, self._containers, self._depth, self._deepest = 1, 0, 0, 0
        self._found: list[tuple[Places, Bytes, npt.NDArray[np.int16]]] = []

    def add(self, part: Bytes, start: int) -> None:
        """The next bytes, from this place on. Raises InvalidCall where a limit is exceeded."""
        marks = np.flatnonzero(_IS_MARK[part])
        kinds = part[marks]
        quotes, self._is_escaped = _quotes(marks, kinds, len(part), self._is_escaped)
        inside = (np.cumsum(quotes, dtype=np.int32) + self._in_text) & 1  # 0 at a closing quote
        _check_numbers(part, marks, inside, self._in_text)
        if len(inside):
            self._in_text = bool(inside[-1])
        is_sign = (inside == 0) & _IS_SIGN[kinds]
        self._add_signs(marks[is_sign] + start, kinds[is_sign])

    def outline(self, body: bytes) -> Outline:
        """All of it."""
        none = np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int16)
        places, signs, levels = map(np.concatenate, zip(none, *self._found, strict=True))
        counts = self._values, self._containers, self._deepest
        return Outline(body, *counts, places, signs, levels)

    def _add_signs(self, places: Places, signs: Bytes) -> None:
        """The signs of structure of a slice."""
        steps = _STEP[signs]
        levels = self._depth + np.cumsum(steps, dtype=np.int32)
        if not len(levels):
            return
        num_opened = int(np.count_nonzero(steps == 1))
        is_separator = steps == 0
        self._depth, self._deepest = int(levels[-1]), max(self._deepest, int(levels.max()))
        self._containers += num_opened
        self._values += num_opened + int(np.count_nonzero(is_separator))
        self._check()
        at = np.clip(levels[is_separator], -1, _MOST_LEVELS).astype(np.int16)
        self._found.append((places[is_separator], signs[is_separator], at))

    def _check(self) -> None:
        limits = self._limits
        for found, most, kind, name in (
            (self._values, limits.max_values, "values", "max_values"),
            (self._containers, limits.max_containers, "lists and objects", "max_containers"),
            (self._deepest, limits.max_depth, "levels", "max_depth"),
        ):
            if found > most:
                allowed = f"at most {most} {kind} in a body ({name})"
                raise InvalidCall("body", Shown(f"more than {most} {kind}"), allowed)


def _check_numbers(part: Bytes, marks: Places, inside: npt.NDArray[Any], in_text: bool) -> None:
    """Raise InvalidCall for a number of many digits in a slice. inside: whether a text follows each
    mark. in_text: whether the slice begins in one."""
    ends = np.append(marks, len(part))
    lens = np.diff(ends, prepend=-1) - 1
    is_text = np.concatenate(([in_text], inside))
    for at in np.flatnonzero((lens > _MOST_DIGITS) & (is_text == 0)):
        found = part[ends[at] - lens[at] : ends[at]].tobytes()
        if len(found.translate(None, _BLANKS)) > _MOST_DIGITS:
            raise InvalidCall(
                "body", Shown("numbers of many digits"), f"at most {_MOST_DIGITS} digits"
            )


def _quotes(marks: Places, kinds: Bytes, size: int, is_escaped: bool) -> tuple[Bools, bool]:
    """Which of the marks of a slice are quotes that begin or end a text: those that no backslash
    escapes. size: of the slice. is_escaped: its first byte is; returned is the same of the byte
    after it."""
    quotes = kinds == _QUOTE
    is_slash = kinds == _BACKSLASH
    if is_escaped and len(marks) and marks[0] == 0:
        quotes[0] = is_slash[0] = False
    slashes = marks[is_slash]
    if not len(slashes):
        return quotes, False
    is_first = np.diff(slashes, prepend=-2) != 1  # of a run of backslashes
    runs = slashes[is_first][np.cumsum(is_first) - 1]
    escaped = slashes[(slashes - runs) % 2 == 0] + 1
    is_escaped_at = np.zeros(size + 1, bool)
    is_escaped_at[escaped] = True
    return quotes & ~is_escaped_at[marks], bool(is_escaped_at[size])


def _as_utf8(body: bytes, rest: Callable[[], object]) -> bytes:
    """A body in UTF-8, without a mark of byte order. Raises UnicodeDecodeError."""
    encoding = json.detect_encoding(body)
    if encoding == "utf-8":
        return body
    if encoding == "utf-8-sig":
        return body[len(codecs.BOM_UTF8) :]
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    parts = []
    for start in range(0, len(body), SLICE):
        text = decoder.decode(body[start : start + SLICE], start + SLICE >= len(body))
        parts.append(text.encode("utf-8", "surrogatepass"))
        rest()
    return b"".join(parts)
