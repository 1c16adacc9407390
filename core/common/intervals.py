"""Intervals of time: which of them can come one after another."""

from __future__ import annotations

from collections.abc import Iterable


def longest_chain(intervals: Iterable[tuple[float, float]]) -> int:
    """The most of these intervals (begin, end) that come one after another: of those that do not
    overlap, the ones that end first are the most."""
    num, at = 0, float("-inf")
    for begin, end in sorted(intervals, key=lambda it: it[1]):
        if begin > at:
            num, at = num + 1, end
    return num
