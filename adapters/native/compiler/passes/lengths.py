"""The longest path through the calls of a graph: how long it is, and which calls are not on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..graph.graph import Graph
from ..graph.nodes import CALLS, Fork, ForkItem, Gen, Join, Node, Variable
from .ways import Ways

_MOST_WORK = 2_000_000  # nodes, over all paths
_LEVELS = 4
_DEFAULT = 128  # tokens of a gen that sets none
Cost = Callable[[Node], float]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of the longest path, in tokens and in calls one after the other; and the same where each read
    of a variable waits. slack: of each call by position, how much later it may end, in tokens."""

    tokens: float
    calls: int
    waiting_calls: int
    slack: Mapping[int, float]

    def urgencies(self) -> dict[int, int]:
        """What is to be added to the priority of the calls that can wait: at least -4."""
        if not self.tokens:
            return {}
        shares = {at: slack / self.tokens for at, slack in self.slack.items() if slack > 0}
        return {at: -max(1, round(_LEVELS * share)) for at, share in shares.items()}


def lengths_of(graph: Graph) -> Lengths:
    """The lengths of a graph; without slack for one with very many paths."""
    ways = Ways(graph)
    ends = [index for index, block in enumerate(graph.blocks) if block.switch is None]
    if len(ends) * len(graph.nodes) > _MOST_WORK:
        ends = ends[:1]
    slack: dict[int, float] = {}
    tokens, calls, waiting = 0.0, 0, 0
    for index in ends:
        edges = edges_of(ways, index)
        total, found = _slack(ways, index, edges, num_tokens)
        tokens = max(tokens, total)
        calls = max(calls, round(_slack(ways, index, edges, _one)[0]))
        waiting = max(waiting, _waiting_calls(ways, index))
        for position, value in found.items():
            slack[position] = min(value, slack.get(position, value))
    is_whole = len(ends) == sum(block.switch is None for block in graph.blocks)
    return Lengths(tokens, calls, waiting, slack if is_whole else {})


def num_tokens(node: Node) -> float:
    """The tokens that a node writes, at most; one for a select."""
    if isinstance(node, Gen):
        return float(node.sampling.get("max_tokens", _DEFAULT) or _DEFAULT)
    return _one(node)


def _one(node: Node) -> float:
    return float(isinstance(node, CALLS))


def edges_of(ways: Ways, end: int) -> dict[int, list[int]]:
    """For each node on the way to an end, the nodes that it comes after."""
    found: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    switches = _switches(ways, end)
    chosen: list[int] = []  # the select that led here
    for position, node in ways.nodes(end):
        before = list(_direct(node, ways, last))
        if position in switches:
            chosen = [switches[position]]
        if isinstance(node, Variable):
            before.append(node.read.source)
        last[node.stream] = position
        found[position] = before + chosen
    return found


def _waiting_calls(ways: Ways, end: int) -> int:
    """Calls one after the other, where each read of a variable waits before the program goes on."""
    until: dict[int, float] = {}
    waited = 0.0
    for position, before in edges_of(ways, end).items():
        node = ways.graph.nodes[position]
        if isinstance(node, Variable):
            waited = max(waited, until[node.read.source])
        start = max((until[it] for it in before), default=0.0)
        until[position] = max(start, waited) + _one(node)
    return round(max(until.values(), default=0.0))


def _switches(ways: Ways, end: int) -> dict[int, int]:
    """By the position of the first node of each block, the select that led there."""
    found: dict[int, int] = {}
    blocks = ways.graph.blocks
    for index, following in zip(ways.way(end), ways.way(end)[1:], strict=False):
        switch = blocks[index].switch
        assert switch is not None
        found[blocks[following].start] = switch.read.source
    return found


def _direct(node: Node, ways: Ways, last: Mapping[int, int]) -> Iterator[int]:
    if isinstance(node, ForkItem):
        yield node.fork
        return
    if node.stream in last:
        yield last[node.stream]
    if isinstance(node, Join):
        yield from (last[item] for item in ways.items(node.fork) if item in last)


def _slack(
    ways: Ways, end: int, edges: Mapping[int, list[int]], cost: Cost
) -> tuple[float, dict[int, float]]:
    nodes = ways.graph.nodes
    until: dict[int, float] = {}
    for position, before in edges.items():
        start = max((until[it] for it in before), default=0.0)
        until[position] = start + cost(nodes[position])
    total = max(until.values(), default=0.0)
    after: dict[int, float] = dict.fromkeys(edges, 0.0)
    for position in reversed(tuple(edges)):
        rest = after[position] + cost(nodes[position])
        for earlier in edges[position]:
            after[earlier] = max(after[earlier], rest)
    found = {
        position: total - until[position] - after[position]
        for position in edges
        if isinstance(nodes[position], CALLS)
    }
    return total, found


def calling_branches(graph: Graph) -> dict[int, int]:
    """For each fork the number of its branches that make a call of their own; not for forks of
    which that depends on a select."""
    ways, found = Ways(graph), dict[int, int]()
    calling: dict[int, set[int]] = {}
    for position, node in enumerate(graph.nodes):
        if isinstance(node, CALLS):
            calling.setdefault(node.stream, set()).add(ways.block_of(position))
    for position, node in enumerate(graph.nodes):
        if isinstance(node, Fork):
            block = ways.block_of(position)
            blocks = [calling.get(item, set()) for item in ways.items(position)]
            if all(not it or block in it for it in blocks):
                found[position] = sum(bool(it) for it in blocks)
    return found
