"""When the calls on one way through a graph run, if each takes as long as it may write tokens.

A call begins when all that it comes after has ended. Nothing here knows a backend: the clock is in
tokens, and a select takes as long as one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate
from typing import NamedTuple

from ..graph.nodes import CALLS, Fork, Gen
from .lengths import DEFAULT_TOKENS, edges_of, num_tokens
from .ways import Ways

_MOST_STEPS = 1000  # that are counted


@dataclass(frozen=True, slots=True)
class Timing:
    """What decides when calls run. default: tokens of a gen that sets none. is_ahead: whether no
    read of a variable waits. most: of forks, how many branches run together."""

    default: int = DEFAULT_TOKENS
    is_ahead: bool = True
    most: tuple[tuple[int, int], ...] = ()


class _Rest(NamedTuple):
    """Calls that come one after another, by their time: as many of these as are the longest."""

    duration: float = 0.0
    num_calls: int = 0


class Timeline:
    """The moments of the nodes on the way to an end. starts, ends: of each node, in tokens. steps:
    the calls before each node, one after another."""

    def __init__(self, ways: Ways, end: int, timing: Timing = Timing()) -> None:
        self._nodes = ways.graph.nodes
        self.starts: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.steps: dict[int, int] = {}
        edges = edges_of(ways, end, timing.is_ahead)
        for position in _ordered(edges, ways, dict(timing.most)):
            before, node = edges[position], self._nodes[position]
            self.steps[position] = max(map(self._step_behind, before), default=0)
            start = max((self.ends[it] for it in before), default=0.0)
            self.starts[position] = start
            self.ends[position] = start + num_tokens(node, timing.default)
        self._calls = sorted(
            (it for it in self.starts if isinstance(self._nodes[it], CALLS)), key=self._moment
        )
        self._times = [self.starts[it] for it in self._calls]
        self._rests = self._found_rests()
        self._firsts = self._found_firsts()
        gens = [it for it in self._calls if isinstance(self._nodes[it], Gen)]
        ends = sorted((self.ends[it], round(self.ends[it] - self.starts[it])) for it in gens)
        self._ends = [end for end, _ in ends]
        self._totals = [0, *accumulate(tokens for _, tokens in ends)]

    def _step_behind(self, position: int) -> int:
        return self.steps[position] + isinstance(self._nodes[position], CALLS)

    def _moment(self, position: int) -> tuple[float, int]:
        return self.starts[position], position

    def calls_left(self, time: float) -> int:
        """The calls of the longest row of those that begin at a time or later."""
        return self._rests[bisect_left(self._times, time)].num_calls

    def tokens_left(self, position: int) -> int:
        """What all other calls generate at most that have not ended when a node begins."""
        node, start = self._nodes[position], self.starts[position]
        own = round(self.ends[position] - start) if isinstance(node, Gen) else 0
        return self._totals[-1] - self._totals[bisect_right(self._ends, start)] - own

    def steps_until(self, time: float, position: int) -> int:
        """After how many calls, one after another from a time on, a call begins: 1 for the next
        one; at most a thousand are counted."""
        begin = self.starts[position]
        for steps in range(1, _MOST_STEPS):
            time = self._firsts[bisect_left(self._times, time)]
            if time > begin:
                return steps
        return _MOST_STEPS

    def _found_rests(self) -> list[_Rest]:
        """Of each call in their order, the rest from its start on; and none at the end."""
        found = [_Rest()]
        for position in reversed(self._calls):
            behind = found[min(self._num_from(self.ends[position]), len(found) - 1)]
            duration = self.ends[position] - self.starts[position]
            found.append(max(found[-1], _Rest(behind.duration + duration, behind.num_calls + 1)))
        return found[::-1]

    def _num_from(self, time: float) -> int:
        """Calls that begin at a time or later."""
        return len(self._calls) - bisect_left(self._times, time)

    def _found_firsts(self) -> list[float]:
        """Of each call in their order, the first end of those from it on; and none at the end."""
        found = [float("inf")]
        for position in reversed(self._calls):
            found.append(min(found[-1], self.ends[position]))
        return found[::-1]


def _ordered(
    edges: dict[int, list[int]], ways: Ways, most: Mapping[int, int]
) -> dict[int, list[int]] | tuple[int, ...]:
    """The nodes, each behind those that it comes after. Adds to the edges those of branches that
    wait until others have ended."""
    if not most:
        return edges
    firsts, lasts = dict[int, int](), dict[int, int]()
    for position in edges:
        stream = ways.graph.nodes[position].stream
        firsts.setdefault(stream, position)  # the ForkItem
        lasts[stream] = position
    for fork, num in most.items():
        if fork in edges and isinstance(ways.graph.nodes[fork], Fork):
            items = ways.items(fork)
            for branch, waiting in zip(items, items[num:], strict=False):
                edges[firsts[waiting]].append(lasts[branch])
    return tuple(TopologicalSorter(edges).static_order())
