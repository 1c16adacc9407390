"""When each root of a graph is used: how often, next and last, and how much of the program is left.

A root is the prompt that a fork's branches share; its own state goes on with it, too. All is known
before a run, as steps (calls that come one after the other) and as estimated tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graph.graph import Graph
from ..graph.nodes import CALLS, Fork
from .lengths import MOST_WORK
from .timeline import Timeline
from .ways import Ways


@dataclass(frozen=True, slots=True)
class Use:
    """A call whose prompt begins with a root. position: of its node. step: the calls before it,
    one after the other; tokens: of the longest path to its start. Where a select decides, it is the
    earliest moment; is_certain: whether every path has the call."""

    position: int
    step: int
    tokens: float
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Root:
    """The prompt at the node `fork`. uses: in the order of their steps. step: when the fork is
    reached. tokens_left: of the longest path from there to the end of its last use."""

    fork: int
    step: int
    uses: tuple[Use, ...]
    tokens_left: float

    @property
    def num_uses(self) -> int:
        """Calls that share it, on all paths."""
        return len(self.uses)

    @property
    def last(self) -> Use | None:
        """The use after which it may be forgotten."""
        return self.uses[-1] if self.uses else None

    def next_after(self, step: int) -> Use | None:
        """The first use at a later step; None: there is none."""
        return next((use for use in self.uses if use.step > step), None)


def roots_of(graph: Graph) -> tuple[Root, ...]:
    """The roots of a graph, in the order of its forks; none where it has very many uses."""
    forks = sum(isinstance(node, Fork) for node in graph.nodes)
    calls = sum(isinstance(node, CALLS) for node in graph.nodes)
    ends = [index for index, block in enumerate(graph.blocks) if block.switch is None]
    if not forks or (forks * calls + len(graph.nodes)) * len(ends) > MOST_WORK:
        return ()
    ways = Ways(graph)
    moments = [_Moments(ways, end) for end in ends]
    found: dict[int, list[tuple[_Moments, list[int]]]] = {}
    for moment in moments:
        for fork, uses in moment.uses().items():
            found.setdefault(fork, []).append((moment, uses))
    return tuple(_root(fork, found[fork], len(ends)) for fork in sorted(found))


class _Moments:
    """The uses of roots on one way through a graph."""

    def __init__(self, ways: Ways, end: int) -> None:
        self._ways, self._end = ways, end
        timeline = Timeline(ways, end)
        self.steps, self.starts, self.ends = timeline.steps, timeline.starts, timeline.ends

    def uses(self) -> dict[int, list[int]]:
        """For each fork on the way, the calls whose prompts begin with what it forks."""
        found: dict[int, list[int]] = {}
        forks_of: dict[int, list[int]] = {}
        for position, node in self._ways.nodes(self._end):
            if isinstance(node, Fork):
                forks_of.setdefault(node.stream, []).append(position)
                found[position] = []
            elif isinstance(node, CALLS):
                for fork in self._roots_before(position, node.stream, forks_of):
                    found[fork].append(position)
        return found

    def _roots_before(
        self, position: int, stream: int, forks_of: dict[int, list[int]]
    ) -> Iterator[int]:
        """The forks of a stream, and of those that it was forked from, up to a position."""
        at: int | None = position
        while at is not None:
            yield from (fork for fork in forks_of.get(stream, ()) if fork <= at)
            at = self._ways.opened_by.get(stream)
            if at is not None:
                stream = self._ways.graph.nodes[at].stream


def _root(fork: int, found: list[tuple[_Moments, list[int]]], num_ways: int) -> Root:
    """One root, of all ways that have its fork."""
    nums: dict[int, int] = {}
    steps: dict[int, int] = {}
    tokens: dict[int, float] = {}
    left = 0.0
    for moments, uses in found:
        for use in uses:
            nums[use] = nums.get(use, 0) + 1
            steps[use] = min(steps.get(use, moments.steps[use]), moments.steps[use])
            tokens[use] = min(tokens.get(use, moments.starts[use]), moments.starts[use])
            left = max(left, moments.ends[use] - moments.starts[fork])
    order = sorted(nums, key=lambda use: (steps[use], use))
    all_uses = tuple(Use(it, steps[it], tokens[it], nums[it] == num_ways) for it in order)
    return Root(fork, min(moments.steps[fork] for moments, _ in found), all_uses, left)
