"""A plan of the KV memory: the most tokens that a program holds at once, and how many branches of a
fork may run together so that they fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..graph.graph import Graph
from ..graph.nodes import (
    Argument,
    ConstantText,
    Fork,
    Gen,
    Join,
    Node,
    Select,
    Variable,
)
from .ways import Ways

Count = Callable[[str], int]
_DEFAULT = 128  # tokens of a gen that sets none
_PER_TOKEN = 3  # characters, where no tokenizer is at hand: rather too many tokens than too few


def estimated(text: str) -> int:
    """Tokens of a text, where nobody counts them."""
    return -(-len(text) // _PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Peak:
    """The most tokens that one program holds: of the prefix that all programs share, and its own.
    most: for each fork whose branches do not fit at once, how many may run together."""

    shared: int
    own: int
    most: Mapping[int, int]

    def num_programs(self, capacity: int) -> int:
        """How many programs fit at once; at least 1."""
        return max(1, (capacity - self.shared) // max(1, self.own))


class Memory:
    """The tokens of a graph's streams. arguments: tokens of each argument. count: of a text."""

    def __init__(
        self, graph: Graph, arguments: Mapping[str, int] | None = None, count: Count = estimated
    ) -> None:
        self._graph, self._ways = graph, Ways(graph)
        self._arguments = arguments or {}
        self._costs = [self._cost(node, count) for node in graph.nodes]
        self._ends = [index for index, block in enumerate(graph.blocks) if block.switch is None]

    def peak(self, prefix: int = 0, capacity: int | None = None) -> Peak:
        """The peak of one program of which `prefix` tokens are shared by all. capacity: tokens that
        there is room for; forks whose branches are more get a limit where they may have one."""
        most: dict[int, int] = {}
        total = max(self._of_way(end, most) for end in self._ends)
        if capacity is not None and total > capacity:
            for end in self._ends:
                most |= self._fitting(end, total, capacity)
            total = max(self._of_way(end, most) for end in self._ends)
        return Peak(prefix, max(0, total - prefix), most)

    def _fitting(self, end: int, total: int, capacity: int) -> dict[int, int]:
        """For each fork on the way to an end how many of its branches fit beside all else."""
        found, held = {}, self._of_streams(end)
        for fork in independent_forks(self._graph, self._ways):
            tokens = [held.get(item, 0) for item in self._ways.items(fork)]
            left = capacity - (total - sum(tokens))
            num = max(1, left // max(1, *tokens))
            if num < len(tokens):
                found[fork] = num
        return found

    def _of_way(self, end: int, most: Mapping[int, int]) -> int:
        """The most tokens on the way to an end: branches that were joined hold none."""
        held, peak = 0, 0
        of_streams, open_forks = self._of_streams(end), dict[int, int]()
        for position, node in self._ways.nodes(end):
            is_branch = node.stream in self._ways.opened_by
            if isinstance(node, Fork) and not is_branch:
                items = sorted(of_streams.get(it, 0) for it in self._ways.items(position))
                num = most.get(position, len(items))
                open_forks[position] = sum(items[len(items) - num :])
                held += open_forks[position]
            elif isinstance(node, Join):
                held -= open_forks.pop(node.fork, 0)
            if not is_branch:
                held += self._costs[position]
            peak = max(peak, held)
        return peak

    def _of_streams(self, end: int) -> dict[int, int]:
        """The tokens of each stream on the way to an end, its branches included."""
        found: dict[int, int] = {}
        for position, node in self._ways.nodes(end):
            found[node.stream] = found.get(node.stream, 0) + self._costs[position]
        for stream in reversed(found):  # a branch is opened after its parent
            fork = self._ways.opened_by.get(stream)
            if fork is not None:
                found[self._graph.nodes[fork].stream] += found[stream]
        return found

    def _cost(self, node: Node, count: Count) -> int:
        match node:
            case ConstantText(text=text):
                return count(text)
            case Argument(name=name):
                return self._arguments.get(name, 0)
            case Variable(read=read):
                return self._cost(self._graph.nodes[read.source], count)
            case Gen():
                return int(node.sampling.get("max_tokens", _DEFAULT) or _DEFAULT)
            case Select(options=options):
                return max(map(count, options))
        return 0


def independent_forks(graph: Graph, ways: Ways) -> list[int]:
    """The forks none of whose branches waits for another one: no branch reads what another one
    sets, and all that they do is in the block of the fork."""
    found = {at for at, node in enumerate(graph.nodes) if isinstance(node, Fork)}
    for position, node in enumerate(graph.nodes):
        fork = ways.opened_by.get(node.stream)
        if fork is None:
            continue
        is_apart = not isinstance(node, Fork)
        if isinstance(node, Variable):
            source = graph.nodes[node.read.source]
            is_apart = ways.opened_by.get(source.stream) != fork or source.stream == node.stream
        if not is_apart or ways.block_of(position) != ways.block_of(fork):
            found.discard(fork)
    return sorted(found)
