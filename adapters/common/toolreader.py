"""Reads tool calls out of an answer while it comes in.

Anything but a call of a known tool is text. A call's name is given once it is complete, its
arguments as they come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

from ...core.api.protocol import Output
from .tools import CLOSE, OPEN

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')


class TextPiece(NamedTuple):
    """Text outside of calls."""

    text: str


class CallStart(NamedTuple):
    """Call `number` of the answer begins."""

    number: int
    name: str


class ArgumentsPiece(NamedTuple):
    """A piece of the arguments of call `number`."""

    number: int
    text: str


Piece: TypeAlias = TextPiece | CallStart | ArgumentsPiece


def is_calling(output: Output, num_calls: int) -> bool:
    """Whether an answer with so many calls ended for the sake of them: by itself, or cut off where
    the last one is whole, so that all of them can be answered."""
    if output.finish_reason == "length":
        return num_calls > 0 and output.text.rstrip().endswith(CLOSE)
    return num_calls > 0 and output.finish_reason == "stop"


class ToolReader:
    """Cuts one answer into text and calls. names: of the tools that there are.

    num_calls: started so far.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.num_calls = 0
        self._names = names
        self._rest = ""
        self._blanks = ""  # given only if text follows
        self._read = self._outside
        self._value = _Value()
        self._is_last = False

    def push(self, text: str, is_last: bool = False) -> list[Piece]:
        """Text and calls in more of the answer. is_last: it ends here."""
        self._rest += text
        self._is_last = is_last
        pieces: list[Piece] = []
        while self._read(pieces):
            pass
        if is_last and self._blanks and not self.num_calls:
            pieces.append(TextPiece(self._blanks))
        return pieces

    def _outside(self, pieces: list[Piece]) -> bool:
        before, tag, after = self._rest.partition(OPEN)
        if tag:
            self._add_text(pieces, before)
            self._rest = after
            self._read = self._head
            return True
        held = 0 if self._is_last else _held_back(self._rest)
        self._add_text(pieces, self._rest[: len(self._rest) - held])
        self._rest = self._rest[len(self._rest) - held :]
        return False

    def _head(self, pieces: list[Piece]) -> bool:
        found = _HEAD.match(self._rest)
        if found and (name := _loaded(found[1])) in self._names:
            self._begin(pieces, name)
            self._rest = self._rest[found.end() :]
            self._value = _Value()
            self._read = self._arguments
            return True
        inside, tag, after = self._rest.partition(CLOSE)
        if not tag and not self._is_last:
            return False
        self._whole(pieces, inside, tag)
        self._rest = after
        self._read = self._outside
        return True

    def _arguments(self, pieces: list[Piece]) -> bool:
        size = self._value.read(self._rest)
        if size:
            pieces.append(ArgumentsPiece(self.num_calls - 1, self._rest[:size]))
        self._rest = self._rest[size:]
        if self._value.is_whole:
            self._read = self._tail
        return self._value.is_whole

    def _tail(self, pieces: list[Piece]) -> bool:
        _, tag, after = self._rest.partition(CLOSE)
        if tag:
            self._rest = after
            self._read = self._outside
        return bool(tag)

    def _whole(self, pieces: list[Piece], inside: str, tag: str) -> None:
        """A call that was not written as calls are, read as a whole."""
        call = json_object(inside)
        name, arguments = call.get("name"), call.get("arguments", call.get("parameters", {}))
        if not isinstance(name, str) or name not in self._names:
            self._add_text(pieces, f"{OPEN}{inside}{tag}")
            return
        self._begin(pieces, name)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        pieces.append(ArgumentsPiece(self.num_calls - 1, text))

    def _begin(self, pieces: list[Piece], name: str) -> None:
        self._blanks = ""
        pieces.append(CallStart(self.num_calls, name))
        self.num_calls += 1

    def _add_text(self, pieces: list[Piece], text: str) -> None:
        """Text; blanks at its end wait until more text follows."""
        shown = (self._blanks + text).rstrip()
        self._blanks = (self._blanks + text)[len(shown) :]
        if shown:
            pieces.append(TextPiece(shown))


class _Value:
    """Finds the end of a JSON object. is_whole: it was reached."""

    def __init__(self) -> None:
        self.is_whole = False
        self._depth = 0
        self._is_text = False
        self._is_escaped = False

    def read(self, text: str) -> int:
        """How many of these characters belong to the object."""
        for index, char in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._is_text:
                self._is_escaped = char == "\\"
                self._is_text = char != '"'
            elif char == '"':
                self._is_text = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.is_whole = True
                    return index + 1
        return len(text)


def _held_back(text: str) -> int:
    """How many last characters may be the beginning of a call."""
    sizes = range(min(len(OPEN) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(OPEN[:size])), 0)


def json_object(text: str) -> dict[str, Any]:
    """The object that a text is as JSON; an empty one where it is none, as when it was cut off."""
    value = _loaded(text)
    return value if isinstance(value, dict) else {}


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
