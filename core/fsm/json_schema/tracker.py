"""Follows JSON byte by byte and keeps what must differ: items of arrays, and names of objects.

Immutable: each step gives another tracker. Knows nothing of schemas, automata or tokens.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from .alike import BLANKS, Alike
from .patterns.spelling import value_key
from .shapes import NOWHERE, Shapes

EXPONENTS = frozenset(b"eE")
_NUMBER = re.compile(rb"[-.0-9]+$")


class Frame(NamedTuple):
    """An object or array that is open.

    shape: its row. child: the row of the value that is written, or comes next. number: of the item.
    seen: the items or names so far, where they must differ: of each its value, and where a text of
    it begins; None elsewhere. alike: those which the current item or name may still be.
    start: where the current item or property begins, in the text that is kept.
    """

    is_array: bool
    shape: int
    child: int = NOWHERE
    number: int = 0
    seen: tuple[tuple[str, Alike], ...] | None = None
    alike: tuple[Alike, ...] = ()
    start: int = 0

    @property
    def starts(self) -> tuple[Alike, ...]:
        """Where the texts of all that was seen begin."""
        return tuple(it for _, it in self.seen or ())

    def next(self, number: int, start: int) -> Frame:
        """The same before its next item or property."""
        return self._replace(number=number, alike=self.starts, start=start)

    def followed(self, text: bytes) -> Frame:
        """The same in a text in which numbers have exponents."""
        alike = self.starts
        for byte in text[self.start :] if alike else b"":
            alike = _still(alike, byte, has_exponent=True)
        return self._replace(alike=alike)


class Tracker(NamedTuple):
    """What is open in a JSON text.

    text: from the outermost place on where something must differ. in_key: inside a property's name,
    which is kept in `key`.
    """

    shapes: Shapes
    frames: tuple[Frame, ...] = ()
    text: bytes = b""
    num_unique: int = 0
    in_string: bool = False
    is_escaped: bool = False
    in_key: bool = False
    key: bytes = b""

    @property
    def frame(self) -> Frame | None:
        """The innermost open array whose items must differ, or object whose names must."""
        return next((f for f in reversed(self.frames) if f.seen is not None), None)

    def after(self, data: bytes) -> Tracker | None:
        """The tracker after more of the text; None where an item or a name repeats another."""
        here = self
        for byte in data:
            after = here._step(byte)
            if after is None:
                return None
            here = after
        return here

    @property
    def is_watching(self) -> bool:
        """Whether the current item or name could still repeat another."""
        return any(frame.alike for frame in self.frames)

    @property
    def rests(self) -> frozenset[bytes]:
        """How the innermost value or name goes on where the item is like one before."""
        return frozenset(rest for f in self.frames for it in f.alike for rest in it.rests)

    @property
    def repeating(self) -> frozenset[int]:
        """The bytes with which the current item or name goes on like one before."""
        return frozenset(rest[0] for rest in self.rests if rest)

    def _step(self, byte: int) -> Tracker | None:
        here = self._followed(byte) if self.num_unique else self
        if self.in_string:
            return here._in_string(byte)
        match chr(byte):
            case '"':
                in_key = bool(self.frames) and not self.frames[-1].is_array
                in_key = in_key and self.frames[-1].number == 0
                return here._replace(in_string=True, in_key=in_key, key=b"")
            case "{":
                return here._open_object()
            case "[":
                return here._open_array()
            case ":":
                return here._value_of(json.loads(b'"' + self.key + b'"'))
            case ",":
                return here._next()
            case "]" | "}":
                return here._close()
        return here

    def _followed(self, byte: int) -> Tracker:
        """The same with one more byte of text, and without the values that it does not lead to."""
        text = self.text + bytes((byte,))
        has_exponent = byte in EXPONENTS and not self.in_string and _NUMBER.search(self.text)
        if has_exponent:  # it may mean more than a number like this without one
            frames = tuple(frame.followed(text) for frame in self.frames)
        elif self.is_watching:
            frames = tuple(it._replace(alike=_still(it.alike, byte)) for it in self.frames)
        else:
            frames = self.frames
        return self._replace(text=text, frames=frames)

    def _in_string(self, byte: int) -> Tracker | None:
        if self.in_key and (self.is_escaped or byte != ord('"')):
            self = self._replace(key=self.key + bytes((byte,)))
        if self.is_escaped:
            return self._replace(is_escaped=False)
        if byte == ord("\\"):
            return self._replace(is_escaped=True)
        if byte != ord('"'):
            return self
        here = self._replace(in_string=False, in_key=False)
        return here._with_name() if self.in_key and self.frames[-1].seen is not None else here

    def _with_name(self) -> Tracker | None:
        """The same with the name that ends here; None where it repeats one."""
        frame = self.frames[-1]
        seen = _with(frame.seen or (), self.text[frame.start :].strip(BLANKS))
        return None if seen is None else self._top(frame._replace(seen=seen))

    def _row(self) -> int:
        """The row of the value that comes next."""
        return self.frames[-1].child if self.frames else 0

    def _open(self, frame: Frame) -> Tracker:
        return self._replace(frames=(*self.frames, frame))

    def _open_array(self) -> Tracker:
        row = self._row()
        shape = None if row == NOWHERE else self.shapes[row]
        child = NOWHERE if shape is None else shape.item(0)
        if shape is None or not shape.is_unique:
            return self._open(Frame(True, row, child))
        here = self._watching(b"[")
        return here._open(Frame(True, row, child, seen=(), start=len(here.text)))

    def _open_object(self) -> Tracker:
        row = self._row()
        # Equal items are found whatever they hold: no name comes twice in what nothing is known of.
        is_counted = self.num_unique > 0 if row == NOWHERE else self.shapes[row].is_counted
        if not is_counted:
            return self._open(Frame(False, row))
        here = self._watching(b"{")
        return here._open(Frame(False, row, seen=(), start=len(here.text)))

    def _watching(self, opener: bytes) -> Tracker:
        """The same with one more place where something must differ."""
        text = self.text if self.num_unique else opener
        return self._replace(text=text, num_unique=self.num_unique + 1)

    def _value_of(self, name: str) -> Tracker:
        frame = self.frames[-1]
        child = NOWHERE if frame.shape == NOWHERE else self.shapes[frame.shape].value(name)
        return self._top(frame._replace(child=child, number=1))

    def _top(self, frame: Frame) -> Tracker:
        return self._replace(frames=(*self.frames[:-1], frame))

    def _next(self) -> Tracker | None:
        frame = self.frames[-1]
        if not frame.is_array:
            return self._top(frame.next(0, len(self.text)))
        seen = frame.seen
        if seen is not None and (seen := self._with_item(frame)) is None:
            return None
        number = frame.number + 1
        child = NOWHERE if frame.shape == NOWHERE else self.shapes[frame.shape].item(number)
        return self._top(frame._replace(child=child, seen=seen).next(number, len(self.text)))

    def _close(self) -> Tracker | None:
        frame = self.frames[-1]
        here = self._replace(frames=self.frames[:-1])
        if frame.seen is None:
            return here
        if frame.is_array and self._with_item(frame) is None:
            return None
        left = self.num_unique - 1
        return here._replace(num_unique=left, text=self.text if left else b"")

    def _with_item(self, frame: Frame) -> tuple[tuple[str, Alike], ...] | None:
        """What was seen and the item that ends before the last byte; None where it repeats one."""
        return _with(frame.seen or (), self.text[frame.start : -1].strip(BLANKS))


def _still(alike: tuple[Alike, ...], byte: int, has_exponent: bool = False) -> tuple[Alike, ...]:
    return tuple(after for it in alike if (after := it.after(byte, has_exponent)) is not None)


def _with(seen: tuple[tuple[str, Alike], ...], text: bytes) -> tuple[tuple[str, Alike], ...] | None:
    """What was seen and one more, if it is a whole value; None where it repeats one."""
    try:
        value = json.loads(text)
    except ValueError:
        return seen
    key = value_key(value)
    return None if any(key == other for other, _ in seen) else (*seen, (key, Alike.to(value)))
