"""From the nodes of a graph to what an execution submits: expressions, which are made once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....core.api.protocol import Image, Video
from ..language import expressions as language
from .graph import nodes as graph
from .graph.blocks import Block
from .graph.graph import Graph
from .graph.nodes import TEXTS, Node, Read, TextNode
from .graph.streams import Streams
from .graph.values import reads_of


@dataclass(frozen=True, slots=True)
class Append:
    """An expression that is known. is_read: the variable that it sets is read. is_stale: also once
    it has been set again."""

    stream: int
    position: int
    expression: language.Expression
    is_read: bool = False
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Compose:
    """A text with arguments and variables in it."""

    stream: int
    parts: tuple[TextNode, ...]

    @property
    def reads(self) -> tuple[Read, ...]:
        """The variables in it."""
        return tuple(part.read for part in self.parts if isinstance(part, graph.Variable))


@dataclass(frozen=True, slots=True)
class Show:
    """An image or a video that an argument gives."""

    stream: int
    node: graph.Media


@dataclass(frozen=True, slots=True)
class Branch:
    """A fork, and the streams of its branches. num_calls: of the branches that make calls; None:
    all may. most: branches that may run at once; None: all."""

    stream: int
    position: int
    items: tuple[int, ...]
    num_calls: int | None = None
    most: int | None = None


Op: TypeAlias = Append | Compose | Show | Branch | graph.Join | graph.Begin | graph.End


@dataclass(frozen=True, slots=True)
class Lowered:
    """What an execution submits, by block."""

    blocks: tuple[Block, ...]
    ops: tuple[tuple[Op, ...], ...]
    backends: frozenset[str]


def lowered(
    graph_: Graph,
    urgencies: Mapping[int, int],
    num_calls: Mapping[int, int],
    most: Mapping[int, int],
) -> Lowered:
    """The operations of a graph. urgencies: of calls, by position. num_calls, most: of forks, as in
    `Branch`."""
    reads = Reads(graph_)
    ops = []
    for block in graph_.blocks:
        found: list[Op] = []
        for run in _grouped(graph_.nodes, block):
            op = _op(graph_.nodes, run, urgencies, reads)
            if isinstance(op, Branch):
                at = op.position
                op = Branch(op.stream, at, op.items, num_calls.get(at), most.get(at))
            if op is not None:
                found.append(op)
        ops.append(tuple(found))
    return Lowered(graph_.blocks, tuple(ops), _backends(graph_.nodes))


def _grouped(nodes: Sequence[Node], block: Block) -> Iterator[range]:
    """The positions of a block, those of one text together."""
    start = block.start
    while start < block.end:
        end = start + 1
        while end < block.end and isinstance(nodes[end], TEXTS) and _continues(nodes[end]):
            end += 1
        yield range(start, end)
        start = end


def _continues(node: Node) -> bool:
    return isinstance(node, TEXTS) and node.continues


def _op(nodes: Sequence[Node], run: range, urgencies: Mapping[int, int], reads: Reads) -> Op | None:
    position, node = run.start, nodes[run.start]
    if isinstance(node, TEXTS):
        parts: tuple[TextNode, ...] = tuple(nodes[at] for at in run)  # type: ignore[misc]
        if all(isinstance(part, graph.ConstantText) for part in parts):
            text = "".join(part.text for part in parts if isinstance(part, graph.ConstantText))
            return Append(node.stream, position, language.Constant(text))
        return Compose(node.stream, parts)
    match node:
        case graph.ForkItem():
            return None
        case graph.Fork(stream, num):
            items = tuple(nodes[position + 1 + index].stream for index in range(num))
            return Branch(stream, position, items)
        case graph.Join() | graph.Begin() | graph.End():
            return node
        case graph.Media(data=None):
            return Show(node.stream, node)
    expression = expression_of(node, urgencies.get(position, 0))
    is_read, is_stale = position in reads.all, position in reads.stale
    return Append(node.stream, position, expression, is_read, is_stale)


def expression_of(node: Node, extra_priority: int = 0) -> language.Expression:
    """The expression of the language that a node stands for, where it is one."""
    match node:
        case graph.Gen(_, name, sampling, constraint, backend, is_streamed, resample, scored_from):
            settings = constraint, backend, is_streamed, resample, scored_from
            return language.Gen(name, sampling, *settings, extra_priority=extra_priority)
        case graph.Select(_, name, options, method, backend):
            return language.Select(name, options, method, backend, extra_priority)
        case graph.Media(_, bytes() as data, _, int(num_frames)):
            return language.Media(Video(data, num_frames))
        case graph.Media(_, bytes() as data):
            return language.Media(Image(data))
        case graph.RoleBegin(_, role):
            return language.RoleBegin(role)
        case graph.RoleEnd():
            return language.RoleEnd()
        case graph.ScopeBegin(_, name):
            return language.ScopeBegin(name)
        case graph.ScopeEnd(_, name):
            return language.ScopeEnd(name)
        case graph.ConstantText(_, text):
            return language.Constant(text)
    raise AssertionError(f"no expression: {node}")


class Reads:
    """The positions of the nodes whose variables are read. stale: also once these are set again."""

    def __init__(self, graph_: Graph) -> None:
        self.all: set[int] = set()
        self.stale: set[int] = set()
        self._nodes, self._blocks = graph_.nodes, graph_.blocks
        self._go_through(0, Streams())

    def _go_through(self, index: int, streams: Streams) -> None:
        block = self._blocks[index]
        for position in range(block.start, block.end):
            node = self._nodes[position]
            if isinstance(node, graph.Variable):
                self._add(node.read, streams)
            streams.add(position, node)
        if block.value is not None:
            for read in reads_of(block.value):
                self._add(read, streams)
        if block.switch is not None:
            self._add(block.switch.read, streams)
            for case in block.switch.cases:
                self._go_through(case.block, streams.copy())

    def _add(self, read: Read, streams: Streams) -> None:
        self.all.add(read.source)
        if not streams.is_latest(read):
            self.stale.add(read.source)


def _backends(nodes: Sequence[Node]) -> frozenset[str]:
    calls = (node for node in nodes if isinstance(node, graph.Gen | graph.Select))
    return frozenset(node.backend for node in calls if node.backend is not None)
