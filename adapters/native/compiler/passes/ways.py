"""The ways through a graph, for passes: blocks before blocks, and the calls that follow calls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..graph.graph import Graph
from ..graph.nodes import Fork, ForkItem, Node
from ..graph.streams import Streams


class Ways:
    """The blocks of a graph as a tree, and the nodes of each stream."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._starts = [block.start for block in graph.blocks]
        self._before: list[tuple[int, ...]] = [(0,) for _ in graph.blocks]
        for index, block in enumerate(graph.blocks):
            cases = block.switch.cases if block.switch is not None else ()
            for case in cases:
                self._before[case.block] = (*self._before[index], case.block)
        self._of_stream: dict[int, list[int]] = {}
        self.opened_by: dict[int, int] = {}
        for position, node in enumerate(graph.nodes):
            self._of_stream.setdefault(node.stream, []).append(position)
            if isinstance(node, ForkItem):
                self.opened_by[node.stream] = node.fork

    def block_of(self, position: int) -> int:
        """The block that a node is in."""
        starts = self._starts
        index = bisect_right(starts, position) - 1
        while self.graph.blocks[index].end <= position:  # an empty block
            index -= 1
        return index

    def before(self, stream: int, position: int, block: int) -> Iterator[int]:
        """The nodes of a stream before a position on the way to it, the latest first."""
        way = set(self._before[block])
        for found in reversed(self._of_stream.get(stream, [])):
            if found < position and self.block_of(found) in way:
                yield found

    def items(self, fork: int) -> tuple[int, ...]:
        """The streams of a fork's branches."""
        node = self.graph.nodes[fork]
        assert isinstance(node, Fork)
        return tuple(it.stream for it in self.graph.nodes[fork + 1 : fork + 1 + node.num])

    def way(self, block: int) -> tuple[int, ...]:
        """The blocks on the way to one, itself included."""
        return self._before[block]

    def ends(self) -> Iterator[tuple[int, Streams]]:
        """Each block that ends the program, and its streams then."""
        waiting = [(0, Streams())]
        while waiting:
            index, streams = waiting.pop()
            block = self.graph.blocks[index]
            for position in range(block.start, block.end):
                streams.add(position, self.graph.nodes[position])
            if block.switch is None:
                yield index, streams
                continue
            waiting += [(case.block, streams.copy()) for case in block.switch.cases]

    def nodes(self, block: int) -> Iterator[tuple[int, Node]]:
        """The nodes on the way through a block, in order."""
        for index in self._before[block]:
            for position in range(self.graph.blocks[index].start, self.graph.blocks[index].end):
                yield position, self.graph.nodes[position]
