"""Dead generations: calls that none of a graph's outputs needs are left out."""

from __future__ import annotations

from dataclasses import replace

from ..graph.graph import Graph
from ..graph.moving import rebuilt
from ..graph.nodes import CALLS, SETTERS, TEXTS, Join, Node, Variable
from ..graph.streams import Streams
from ..graph.values import Listed, Mapped, State, Value, reads_of
from .ways import Ways


def without_dead(graph: Graph) -> Graph:
    """The graph without the calls that no output needs, and without what reads them; the same
    where it has no `outputs`. What a program returns, and what it branches on, is needed too."""
    if graph.outputs is None:
        return graph
    needed = _Needed(graph).calls
    dead = {at for at, node in enumerate(graph.nodes) if isinstance(node, CALLS)} - needed
    if not dead:
        return graph
    blocks = []
    for block in graph.blocks:
        pairs: list[tuple[int, Node]] = []
        for position in range(block.start, block.end):
            node = graph.nodes[position]
            if position in dead or (isinstance(node, Variable) and node.read.source in dead):
                continue
            pairs.append((position, node))
        blocks.append(_reattached(pairs))
    return rebuilt(graph, blocks)


def _reattached(pairs: list[tuple[int, Node]]) -> list[tuple[int, Node]]:
    """The same, no text going on one that is gone."""
    found: list[tuple[int, Node]] = []
    for position, node in pairs:
        if getattr(node, "continues", False) and not _is_continued(found, node):
            node = replace(node, continues=False)  # type: ignore[call-arg]
        found.append((position, node))
    return found


def _is_continued(found: list[tuple[int, Node]], node: Node) -> bool:
    return bool(found) and isinstance(found[-1][1], TEXTS) and found[-1][1].stream == node.stream


class _Needed:
    """The calls that are needed: what outputs, switches and returned values read, and what is
    before these in their prompts."""

    def __init__(self, graph: Graph) -> None:
        self.calls: set[int] = set()
        self._graph, self._ways = graph, Ways(graph)
        self._seen: set[tuple[int, int]] = set()
        self._waiting: list[tuple[int, int, int]] = []
        for index, streams in self._ways.ends():
            self._end(index, streams)
        for block in graph.blocks:
            if block.switch is not None:
                self._setter(block.switch.read.source)
        while self._waiting:
            self._prompt(*self._waiting.pop())

    def _end(self, index: int, streams: Streams) -> None:
        block = self._graph.blocks[index]
        for name in self._graph.outputs or ():
            self._variable(streams, 0, name)
        value = block.value
        assert value is not None
        for read in reads_of(value):
            self._setter(read.source)
        for stream in _states(value):
            self._waiting.append((stream, block.end, index))
            for name in streams.names(stream):
                self._variable(streams, stream, name)

    def _variable(self, streams: Streams, stream: int, name: str) -> None:
        source = streams.setter(stream, name)
        if source is None:
            return
        node = self._graph.nodes[source]
        if isinstance(node, Join):
            for item in self._ways.items(node.fork):
                self._variable(streams, item, name)
            self._waiting.append((node.stream, source, self._ways.block_of(source)))
            return
        self._setter(source)

    def _setter(self, source: int) -> None:
        node = self._graph.nodes[source]
        assert isinstance(node, SETTERS)
        self._waiting.append((node.stream, source + 1, self._ways.block_of(source)))

    def _prompt(self, stream: int, end: int, block: int) -> None:
        """All that a stream has before a position is needed."""
        if (stream, end) in self._seen:
            return
        self._seen.add((stream, end))
        for position in self._ways.before(stream, end, block):
            node = self._graph.nodes[position]
            if isinstance(node, CALLS):
                if position in self.calls:
                    break  # and so is what is before it
                self.calls.add(position)
            elif isinstance(node, Variable):
                self._setter(node.read.source)
            elif isinstance(node, Join) and node.mode == "concate_and_append":
                items = self._ways.items(node.fork)
                self._waiting += [(item, position, block) for item in items]
        fork = self._ways.opened_by.get(stream)
        if fork is not None:
            parent = self._graph.nodes[fork].stream
            self._waiting.append((parent, fork, self._ways.block_of(fork)))


def _states(value: Value) -> list[int]:
    match value:
        case State(stream=stream):
            return [stream]
        case Listed(items=items):
            return [stream for item in items for stream in _states(item)]
        case Mapped(pairs=pairs):
            return [stream for _, item in pairs for stream in _states(item)]
    return []
