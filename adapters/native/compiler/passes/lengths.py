"""The longest path through the calls of a graph: how long it is, and which calls are not on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..graph.graph import Graph
from ..graph.nodes import CALLS, Fork, ForkItem, Gen, Join, Node, Variable
from .ways import Ways

MOST_WORK = 2_000_000  # nodes, over all paths
DEFAULT_TOKENS = 128  # of a gen that sets none
_LEVELS = 4
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


def lengths_of(graph: Graph, default: int = DEFAULT_TOKENS, is_ahead: bool = True) -> Lengths:
    """The lengths of a graph; without slack for one with very many paths. default: tokens of a gen
    that sets none. is_ahead: whether no read of a variable waits."""
    ways = Ways(graph)
    ends = [index for index, block in enumerate(graph.blocks) if block.switch is None]
    if len(ends) * len(graph.nodes) > MOST_WORK:
        ends = ends[:1]
    slack: dict[int, float] = {}
    tokens, calls, waiting = 0.0, 0, 0
    for index in ends:
        ahead, waits = edges_of(ways, index), edges_of(ways, index, is_ahead=False)
        total, found = _slack(
            ways, ahead if is_ahead else waits, lambda node: num_tokens(node, default)
        )
        tokens = max(tokens, total)
        calls = max(calls, round(_slack(ways, ahead, _one)[0]))
        waiting = max(waiting, round(_slack(ways, waits, _one)[0]))
        for position, value in found.items():
            slack[position] = min(value, slack.get(position, value))
    is_whole = len(ends) == sum(block.switch is None for block in graph.blocks)
    return Lengths(tokens, calls, waiting, slack if is_whole else {})


def num_tokens(node: Node, default: int = DEFAULT_TOKENS) -> float:
    """The tokens that a node writes, at most; one for a select. default: of a gen that sets
    none."""
    if isinstance(node, Gen):
        limit = node.sampling.get("max_tokens", default)
        return float(DEFAULT_TOKENS if limit is None else limit)
    return _one(node)


def _one(node: Node) -> float:
    return float(isinstance(node, CALLS))


def edges_of(ways: Ways, end: int, is_ahead: bool = True) -> dict[int, list[int]]:
    """For each node on the way to an end, the nodes that it comes after. is_ahead: whether no read
    of a variable waits; else all nodes behind one come after what it reads."""
    found: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    switches = _switches(ways, end)
    awaited: dict[int, int] = {}  # by stream, the last node that the program has waited for
    for position, node in ways.nodes(end):
        before = list(_direct(node, ways, last))
        sources = switches.get(position, [])
        if isinstance(node, Variable):
            before.append(node.read.source)
            sources = sources if is_ahead else [*sources, node.read.source]
        for source in sources:
            stream = ways.graph.nodes[source].stream
            awaited[stream] = max(source, awaited.get(stream, source))
        last[node.stream] = position
        found[position] = [*before, *awaited.values()]
    return found


def _switches(ways: Ways, end: int) -> dict[int, list[int]]:
    """By the position of the first node of each block, the selects that led there."""
    found: dict[int, list[int]] = {}
    blocks = ways.graph.blocks
    for index, following in zip(ways.way(end), ways.way(end)[1:], strict=False):
        switch = blocks[index].switch
        assert switch is not None
        found.setdefault(blocks[following].start, []).append(switch.read.source)
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
    ways: Ways, edges: Mapping[int, list[int]], cost: Cost
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
