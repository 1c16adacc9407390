"""Things in the order of their ranks, kept sorted: at the cost of what changes, not of all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T", bound=Hashable)
Rank: TypeAlias = tuple[int, int]

_AHEAD = 64  # entries that are read at once


class Ranking(Generic[T]):
    """Items by rank, the least first. rank: of an item; no two are equal, and `changed` is called
    after it has changed."""

    def __init__(self, rank: Callable[[T], Rank]) -> None:
        self._rank = rank
        self._sorted: list[tuple[Rank, T]] = []
        self._entries: dict[T, tuple[Rank, T]] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, item: T) -> None:
        """Add an item at its rank."""
        entry = self._entries[item] = self._rank(item), item
        insort(self._sorted, entry, key=_rank_of)

    def remove(self, item: T) -> None:
        """Remove an item."""
        rank, _ = self._entries.pop(item)
        del self._sorted[bisect_left(self._sorted, rank, key=_rank_of)]

    def changed(self, item: T) -> None:
        """Move an item to where its rank is now."""
        if self._entries[item][0] != self._rank(item):
            self.remove(item)
            self.add(item)

    def __iter__(self) -> Iterator[T]:
        """Every item in order. Items may be removed meanwhile; they are then left out."""
        start = 0
        while entries := self._sorted[start : start + _AHEAD]:
            for entry in entries:
                if self._entries.get(entry[1]) is entry:
                    yield entry[1]
            start = bisect_right(self._sorted, entries[-1][0], key=_rank_of)


def _rank_of(entry: tuple[Rank, object]) -> Rank:
    return entry[0]
