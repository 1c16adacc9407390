"""Chooses among ways of computing the same numbers by the time that they took.

Which way is fastest depends on the processor, the sizes, and what else runs. It knows none of the
ways; standard library only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")
_NUM_KEPT = 5  # times of a way
_FEWEST = 3  # times of a way before one is chosen
_FIRST_INTERVAL, _LAST_INTERVAL = 32, 1024  # calls after which another way is tried again


class Chooser:
    """The ways of calls that are alike have one key. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}

    def run(self, key: Hashable, ways: Sequence[int], size: int, call: Callable[[int], T]) -> T:
        """Call with one of the ways. size: of the call, by which its time is divided."""
        kind = self._kinds.get((key, ways := tuple(ways)))
        if kind is None:
            kind = self._kinds[key, ways] = _Kind(ways)
        way, started = kind.next(), self._clock()
        found = call(way)
        kind.note(way, (self._clock() - started) / size)
        return found


class _Kind:
    """Calls that are alike."""

    def __init__(self, ways: tuple[int, ...]) -> None:
        self._times = {way: deque[float](maxlen=_NUM_KEPT) for way in ways}
        self._best = ways[0]
        self._order = deque(ways)  # in which others are tried
        self._interval = _FIRST_INTERVAL
        self._num_left = 0  # calls until another way is tried again

    def next(self) -> int:
        """The way of the next call."""
        newest = min(self._times, key=lambda way: len(self._times[way]))
        if len(self._times[newest]) < _FEWEST:
            return newest
        if self._num_left > 0:
            self._num_left -= 1
            return self._best
        self._num_left = self._interval
        self._interval = min(2 * self._interval, _LAST_INTERVAL)
        self._order.rotate()
        return self._order[0] if self._order[0] != self._best else self._order[-1]

    def note(self, way: int, seconds: float) -> None:
        """A call took so long."""
        self._times[way].append(seconds)
        self._best = min(self._times, key=self._typical)

    def _typical(self, way: int) -> float:
        return median(self._times[way]) if self._times[way] else float("inf")
