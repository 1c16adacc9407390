"""Waiting sequences in the order of their ranks, kept sorted: a step costs what changes in it, and
not what waits.

Knows nothing of caches, tenants or what a rank means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import TypeAlias

from .sequence import Sequence

Rank: TypeAlias = tuple[int, int]
_Entry: TypeAlias = tuple[int, int, Sequence]

_AHEAD = 64  # entries that are read at a time


class Ranking:
    """Sequences by rank, the least first. rank: of a sequence; no two are equal, and it changes
    only before a call of `changed`."""

    def __init__(self, rank: Callable[[Sequence], Rank]) -> None:
        self._rank = rank
        self._sorted: list[_Entry] = []
        self._entries: dict[Sequence, _Entry] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, sequence: Sequence) -> None:
        """Add a sequence at its rank."""
        entry = self._entries[sequence] = (*self._rank(sequence), sequence)
        insort(self._sorted, entry)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence."""
        entry = self._entries.pop(sequence)
        del self._sorted[bisect_left(self._sorted, entry)]

    def changed(self, sequence: Sequence) -> None:
        """Move a sequence to where its rank is now."""
        if self._entries[sequence][:2] != self._rank(sequence):
            self.remove(sequence)
            self.add(sequence)

    def __iter__(self) -> Iterator[Sequence]:
        """Every sequence in order. Sequences may be removed meanwhile; they are then left out."""
        start = 0
        while entries := self._sorted[start : start + _AHEAD]:
            for entry in entries:
                if self._entries.get(entry[2]) is entry:
                    yield entry[2]
            start = bisect_right(self._sorted, entries[-1])
