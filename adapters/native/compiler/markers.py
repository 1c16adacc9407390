"""Markers: texts that stand for unknown texts while a program is traced, found again in its texts.

A marker holds blanks, line ends, quotation marks, braces and letters of both cases, so that what
changes a text otherwise than by putting it beside another one also damages the marker: then the
program is not traceable. Its length differs between the traces, so that what depends on a length
gives different graphs; in the last one it is a single character, which any width makes longer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from .graph.values import Given, Inserted

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"  # characters that no text has
_BLANK = "\u205f"  # one that hardly any text has
_SAMPLE = "aZ é\t<&>\"'%q{!}\\$"
EDGES = "\n", " ", ""
_LENGTHS = dict(zip(EDGES, (8, 21, 8), strict=True))
_SINGLE, _NUM_SINGLE = 0xF0000, 0xFFFE  # the first of the characters that are for private use


def markers_of(edge: str) -> Markers:
    """New markers. edge: one of `EDGES`, with which each begins and ends; "": each is a single
    character."""
    return Markers(edge) if edge else SingleMarkers(edge)


class Markers:
    """The markers of one trace. Mutable."""

    def __init__(self, edge: str) -> None:
        nonce = secrets.token_hex(_LENGTHS[edge])
        self._before = f"{edge}{_BLANK} \n{_OPEN}{_SAMPLE}{nonce}:"
        self._after = f":{nonce}{_CLOSE}\n {_BLANK}{edge}"
        pattern = f"{re.escape(self._before)}([0-9]+){re.escape(self._after)}"
        self._pattern = re.compile(pattern)
        self._nonce = nonce
        self._inserted: list[Inserted] = []
        self._numbers: dict[Inserted, int] = {}

    def add(self, inserted: Inserted) -> str:
        """The marker of a value as text; always the same one. Raises ValueError for very many."""
        number = self._numbers.setdefault(inserted, len(self._inserted))
        if number == len(self._inserted):
            self._inserted.append(inserted)
        return self._marker(number)

    def _marker(self, number: int) -> str:
        return f"{self._before}{number}{self._after}"

    def split(self, text: str) -> tuple[str | Inserted, ...]:
        """The text in parts, each marker the value that it stands for. Raises ValueError where a
        marker was damaged."""
        parts: list[str | Inserted] = []
        for index, part in enumerate(self._pattern.split(text)):
            if index % 2:
                parts.append(self._found(part))
            elif self._is_damaged(part):
                raise ValueError("a marker was damaged")
            elif part:
                parts.append(part)
        return tuple(parts)

    def named(self, text: str) -> str:
        """The text with a name in braces for each marker in it that is whole."""
        parts = self._pattern.split(text)
        for index in range(1, len(parts), 2):
            value = self._found(parts[index]).value
            name = value.name if isinstance(value, Given) else value.read.name
            parts[index] = f"{{{name}}}"
        return "".join(parts)

    def is_in(self, value: Any) -> bool:
        """Whether a marker, whole or damaged, is anywhere in plain data."""
        if isinstance(value, str):
            return self._is_damaged(value)
        if isinstance(value, Mapping):
            return any(self.is_in(it) for pair in value.items() for it in pair)
        if isinstance(value, list | tuple | set | frozenset):
            return any(map(self.is_in, value))
        return False

    def _found(self, digits: str) -> Inserted:
        if len(digits) > 9 or int(digits) >= len(self._inserted):
            raise ValueError("a marker was damaged")
        return self._inserted[int(digits)]

    def _is_damaged(self, text: str) -> bool:
        if text.isascii() and self._nonce not in text:
            return self._nonce in text.lower()
        marks = (_OPEN, _CLOSE, _BLANK, ascii(_OPEN)[1:-1], ascii(_CLOSE)[1:-1])
        return any(mark in text for mark in marks) or self._nonce in text.casefold()


class SingleMarkers(Markers):
    """The same, each a single character."""

    def __init__(self, edge: str) -> None:
        super().__init__(edge)
        self._pattern = re.compile(f"([{chr(_SINGLE)}-{chr(_SINGLE + _NUM_SINGLE - 1)}])")

    def _marker(self, number: int) -> str:
        if number >= _NUM_SINGLE:
            raise ValueError(f"{_NUM_SINGLE} texts that are not known")
        return chr(_SINGLE + number)

    def _found(self, digits: str) -> Inserted:
        number = ord(digits) - _SINGLE
        if number >= len(self._inserted):
            raise ValueError("a marker was damaged")
        return self._inserted[number]

    def _is_damaged(self, text: str) -> bool:
        return not text.isascii() and self._pattern.search(text) is not None
