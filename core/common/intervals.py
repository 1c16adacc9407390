"""Intervals of time: how many of them come one after another.

Of work whose order is not known that is a range. What overlaps ran side by side, and so may all
that is joined by overlaps: as many groups as are apart came one after another for sure. At most the
longest chain of intervals did that do not overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Steps(NamedTuple):
    """The fewest and the most intervals that came one after another."""

    fewest: int
    most: int


def longest_chain(intervals: Iterable[tuple[float, float]]) -> int:
    """The most of these intervals (begin, end) that come one after another: of those that do not
    overlap, the ones that end first are the most."""
    num, at = 0, float("-inf")
    for begin, end in sorted(intervals, key=lambda it: it[1]):
        if begin > at:
            num, at = num + 1, end
    return num


def steps_of(intervals: Iterable[tuple[float, float]]) -> Steps:
    """How many of all these came one after another."""
    return Chains(tuple(intervals)).after(float("-inf"))


class Chains:
    """Some intervals, and how many of those from some time on came one after another."""

    def __init__(self, intervals: Sequence[tuple[float, float]]) -> None:
        ordered = sorted(intervals)
        num_groups, reach = 0, float("-inf")
        groups = []
        for begin, end in ordered:
            num_groups += begin > reach
            reach = max(reach, end)
            groups.append(num_groups)
        self._groups = [num_groups + 1 - group for group in reversed(groups)]
        self._begins: list[float] = []  # negative, thus ascending
        self._longest: list[int] = []
        for begin, end in reversed(ordered):
            before = self._longest[-1] if self._longest else 0
            self._longest.append(max(self._most_after(end) + 1, before))
            self._begins.append(-begin)

    def after(self, time: float) -> Steps:
        """Of the intervals that begin later than this. Those that overlap others which began
        earlier, and go on, count as one of their group."""
        index = bisect_left(self._begins, -time)
        return Steps(self._groups[index - 1], self._longest[index - 1]) if index else Steps(0, 0)

    def _most_after(self, time: float) -> int:
        index = bisect_left(self._begins, -time)
        return self._longest[index - 1] if index else 0
