"""The offline optimum: how many tokens a pool could have served to the calls of a run.

A run is recorded: which sequences start and end, in which order, and how many of their tokens have
slots meanwhile. The same sequences are then replayed in a pool of the same size that knows the
future: what has to go are the tokens whose next use is farthest away (Belady, 1966). Every use of
a token uses all before it, so that on a tree these are always at the end of a leaf.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from forkroot.core.engine.queue import WaitingQueue
from forkroot.core.engine.sequence import Sequence

NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Start:
    """A sequence starts, or goes on after a retraction, with so many known tokens."""

    sequence: Sequence
    num_ids: int
    limit: int


@dataclass(frozen=True, slots=True)
class Grow:
    """So many tokens of running sequences have slots now."""

    lengths: tuple[tuple[Sequence, int], ...]


@dataclass(frozen=True, slots=True)
class End:
    """A sequence ends, or is retracted; so many of its tokens were computed."""

    sequence: Sequence
    length: int


Event: TypeAlias = Start | Grow | End


class RecordingQueue(WaitingQueue):
    """A waiting queue that remembers what was admitted, and what has left."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.events: list[Event] = []

    def admit(self, sequence: Sequence, num_tokens: int) -> None:
        """Take it out to run, and record it."""
        self.events.append(Start(sequence, sequence.num_ids, sequence.match_limit))
        super().admit(sequence, num_tokens)

    def leave(self, sequence: Sequence) -> None:
        """A sequence has ended, or is retracted; recorded if it ran."""
        if sequence.row >= 0:
            self.events.append(End(sequence, sequence.num_computed))
        super().leave(sequence)


@dataclass(slots=True, eq=False)
class _Edge:
    """An edge of the tree of all that a run computes. It is split wherever a sequence leaves it, so
    that all of its tokens are used at the same times.

    uses: numbers of the events that use it. num_resident: of its first tokens that have a slot.
    num_below: edges right below it with resident tokens.
    """

    above: _Edge | None
    ids: tuple[int, ...]
    end: int
    children: dict[int, _Edge] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)
    num_locks: int = 0
    num_resident: int = 0
    num_below: int = 0

    @property
    def start(self) -> int:
        """Depth of its upper end."""
        return self.end - len(self.ids)

    def next_use(self, now: int) -> int:
        """The first event after `now` that uses it."""
        index = bisect_right(self.uses, now)
        return self.uses[index] if index < len(self.uses) else NEVER


class _Pool:
    """Slots that hold the tokens of edges, and the edges that may lose some. now: number of the
    event that happens."""

    def __init__(self, capacity: int) -> None:
        self.now = 0
        self._capacity = capacity
        self._num_used = 0
        self._heap: list[tuple[int, int, int, _Edge]] = []
        self._entries = count()

    def fill(self, edge: _Edge, num: int) -> None:
        """See that the first `num` tokens of a locked edge are resident."""
        missing = num - edge.num_resident
        if missing <= 0:
            return
        if not edge.num_resident and edge.above is not None:
            edge.above.num_below += 1
        self._num_used += missing
        edge.num_resident = num
        self._evict(self._num_used - self._capacity)

    def offer(self, edge: _Edge) -> None:
        """An edge may lose its tokens, if nothing uses it now."""
        if not edge.num_locks and edge.num_resident and not edge.num_below:
            entry = (-edge.next_use(self.now), -edge.end, next(self._entries), edge)
            heapq.heappush(self._heap, entry)

    def _evict(self, num: int) -> None:
        while num > 0 and self._heap:
            edge = self._heap[0][-1]
            if edge.num_locks or not edge.num_resident or edge.num_below:
                heapq.heappop(self._heap)
                continue
            gone = min(num, edge.num_resident)
            edge.num_resident -= gone
            self._num_used -= gone
            num -= gone
            if not edge.num_resident:
                heapq.heappop(self._heap)
                if edge.above is not None:
                    edge.above.num_below -= 1
                    self.offer(edge.above)


def offline_hits(events: Listed[Event], capacity: int) -> tuple[int, int]:
    """Prompt tokens that the optimum computes and that it finds, over all starts in these events.
    Tokens that are locked may exceed the capacity, where the run was luckier with its memory."""
    paths = _paths(events)
    pool = _Pool(capacity)
    computed = found = 0
    for now, event in enumerate(events):
        pool.now = now
        if isinstance(event, Start):
            path = paths[event.sequence]
            hits = min(_length_cached(path, event.num_ids), event.limit)
            found += hits
            computed += event.num_ids - hits
            for edge in path:
                edge.num_locks += 1
        elif isinstance(event, Grow):
            for sequence, length in event.lengths:
                _fill(pool, paths[sequence], length)
        else:
            path = paths[event.sequence]
            _fill(pool, path, event.length)
            for edge in reversed(path):
                edge.num_locks -= 1
                pool.offer(edge)
    return computed, found


def _fill(pool: _Pool, path: list[_Edge], length: int) -> None:
    for edge in path:
        if edge.start >= length:
            return
        pool.fill(edge, min(edge.end, length) - edge.start)


def _length_cached(path: list[_Edge], length: int) -> int:
    """How many of the first tokens of a path are resident."""
    for edge in path:
        if edge.num_resident < len(edge.ids) or edge.end >= length:
            return min(edge.start + edge.num_resident, length)
    return path[-1].end if path else 0


def _paths(events: Listed[Event]) -> dict[Sequence, list[_Edge]]:
    """The edges of each sequence in the tree of all of them, with their uses."""
    starts = [(now, it) for now, it in enumerate(events) if isinstance(it, Start)]
    top = _Edge(None, (), 0)
    sequences = {it.sequence: tuple(it.sequence.tokens.tolist()) for _, it in starts}
    for ids in sequences.values():
        _insert(top, ids)
    for _, it in starts:
        _insert(top, sequences[it.sequence][: it.num_ids])
    for now, it in starts:
        for edge in _walk(top, sequences[it.sequence][: it.num_ids]):
            edge.uses.append(now)
    return {sequence: _walk(top, ids) for sequence, ids in sequences.items()}


def _insert(top: _Edge, ids: tuple[int, ...]) -> None:
    """See that the tree has these, and that an edge ends where they end."""
    at = top
    while at.end < len(ids):
        child = at.children.get(ids[at.end])
        if child is None:
            at.children[ids[at.end]] = _Edge(at, ids[at.end :], len(ids))
            return
        same = _common(child.ids, ids[at.end : child.end])
        at = child if same == len(child.ids) else _split(child, same)


def _split(lower: _Edge, size: int) -> _Edge:
    above = lower.above
    assert above is not None
    upper = _Edge(above, lower.ids[:size], above.end + size)
    above.children[upper.ids[0]] = upper
    lower.above, lower.ids = upper, lower.ids[size:]
    upper.children[lower.ids[0]] = lower
    return upper


def _walk(top: _Edge, ids: tuple[int, ...]) -> list[_Edge]:
    path, at = [], top
    while at.end < len(ids):
        at = at.children[ids[at.end]]
        path.append(at)
    return path


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    if first == second[: len(first)]:
        return len(first)
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
