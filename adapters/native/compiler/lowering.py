"""From the nodes of a graph to what an execution submits: expressions, which are made once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ....core.api.protocol import Image, Video
from ..language import expressions as language
from ..language.outlook import Outlook, RootOutlook
from .graph import nodes as graph
from .graph.blocks import Block
from .graph.graph import Graph
from .graph.nodes import TEXTS, Node, Read, TextNode
from .graph.streams import Streams
from .graph.values import reads_of
from .passes.outlooks import Outlooks


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
    all may. root: what is known of its root; None: nothing. most: branches that may run at once;
    None: all."""

    stream: int
    position: int
    items: tuple[int, ...]
    num_calls: int | None = None
    root: RootOutlook | None = None
    most: int | None = None


Op: TypeAlias = Append | Compose | Show | Branch | graph.Join | graph.Begin | graph.End


@dataclass(frozen=True, slots=True)
class Lowered:
    """What an execution submits, by block. has_outlooks: the calls know what follows them."""

    blocks: tuple[Block, ...]
    ops: tuple[tuple[Op, ...], ...]
    backends: frozenset[str]
    has_outlooks: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """What the passes say of nodes, by position. urgencies, outlooks: of calls. num_calls, most: of
    forks, as in `Branch`."""

    urgencies: Mapping[int, int] = field(default_factory=dict)
    outlooks: Outlooks = field(default_factory=Outlooks)
    num_calls: Mapping[int, int] = field(default_factory=dict)
    most: Mapping[int, int] = field(default_factory=dict)


def lowered(graph_: Graph, advice: Advice) -> Lowered:
    """The operations of a graph."""
    reads = Reads(graph_)
    ops = []
    for block in graph_.blocks:
        runs = _grouped(graph_.nodes, block)
        found = (_op(graph_.nodes, run, advice, reads) for run in runs)
        ops.append(tuple(op for op in found if op is not None))
    has_outlooks = bool(advice.outlooks.calls)
    return Lowered(graph_.blocks, tuple(ops), _backends(graph_.nodes), has_outlooks)


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


def _op(nodes: Sequence[Node], run: range, advice: Advice, reads: Reads) -> Op | None:
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
        case graph.Fork(stream=stream, num=num):
            items = tuple(nodes[position + 1 + index].stream for index in range(num))
            known = advice.num_calls.get(position), advice.outlooks.roots.get(position)
            return Branch(stream, position, items, *known, advice.most.get(position))
        case graph.Join() | graph.Begin() | graph.End():
            return node
        case graph.Media(data=None):
            return Show(node.stream, node)
    urgency, outlook = advice.urgencies.get(position, 0), advice.outlooks.calls.get(position)
    expression = expression_of(node, urgency, outlook)
    is_read, is_stale = position in reads.all, position in reads.stale
    return Append(node.stream, position, expression, is_read, is_stale)


def expression_of(
    node: Node, extra_priority: int = 0, outlook: Outlook | None = None
) -> language.Expression:
    """The expression of the language that a node stands for, where it is one. extra_priority,
    outlook: of a call."""
    match node:
        case graph.Gen(
            name=name,
            sampling=sampling,
            constraint=constraint,
            backend=backend,
            is_streamed=is_streamed,
            resample=resample,
            scored_from=scored_from,
        ):
            settings = constraint, backend, is_streamed, resample, scored_from
            known: dict[str, Any] = {"extra_priority": extra_priority, "outlook": outlook}
            return language.Gen(name, sampling, *settings, **known)
        case graph.Select(name=name, options=options, method=method, backend=backend):
            return language.Select(name, options, method, backend, extra_priority, outlook)
        case graph.Media(data=bytes() as data, num_frames=int() as num_frames):
            return language.Media(Video(data, num_frames))
        case graph.Media(data=bytes() as data):
            return language.Media(Image(data))
        case graph.RoleBegin(role=role):
            return language.RoleBegin(role)
        case graph.RoleEnd():
            return language.RoleEnd()
        case graph.ScopeBegin(name=name):
            return language.ScopeBegin(name)
        case graph.ScopeEnd(name=name):
            return language.ScopeEnd(name)
        case graph.ConstantText(text=text):
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
