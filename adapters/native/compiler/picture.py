"""A graph laid out for a picture: streams as columns, nodes in rows below what they come after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....core.api.protocol import InvalidCall
from .graph import nodes as kinds
from .graph.graph import Graph
from .graph.nodes import Node
from .passes.ways import Ways

MOST_NODES = 2_000
_LENGTH = 40  # characters of a label


@dataclass(frozen=True, slots=True)
class Cell:
    """A node in the picture. kind: of the node. column, row: where it is."""

    position: int
    kind: str
    label: str
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge between the cells of two positions; is_between: from one stream to another."""

    start: int
    end: int
    is_between: bool


@dataclass(frozen=True, slots=True)
class Heading:
    """What leads to a block: the option that was chosen, above its row."""

    text: str
    row: int


@dataclass(frozen=True, slots=True)
class Picture:
    """All of a graph's picture. columns: a name for each."""

    name: str
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    arrows: tuple[Arrow, ...]
    headings: tuple[Heading, ...]

    @property
    def num_rows(self) -> int:
        """Rows of cells and headings."""
        rows = [cell.row for cell in self.cells] + [heading.row for heading in self.headings]
        return max(rows, default=-1) + 1


def picture_of(graph: Graph) -> Picture:
    """The picture of a graph. Raises InvalidCall for one that is too large to be looked at."""
    if len(graph.nodes) > MOST_NODES:
        raise InvalidCall("draw", f"{len(graph.nodes)} nodes", f"a graph of at most {MOST_NODES}")
    return _Sheet(graph).picture


class _Sheet:
    def __init__(self, graph: Graph) -> None:
        self._graph, self._ways = graph, Ways(graph)
        self._rows: dict[int, int] = {}
        self._columns: dict[int, int] = {0: 0}
        self._names = ["main"]
        self._arrows: list[Arrow] = []
        self._headings: list[Heading] = []
        self._next_row = 0
        self._lay_block(0, {}, "")

    @property
    def picture(self) -> Picture:
        cells = tuple(
            Cell(at, _kind(node), label_of(node), self._columns[node.stream], self._rows[at])
            for at, node in enumerate(self._graph.nodes)
        )
        names, arrows = tuple(self._names), tuple(self._arrows)
        return Picture(self._graph.name, names, cells, arrows, tuple(self._headings))

    def _lay_block(self, index: int, last: dict[int, int], heading: str) -> None:
        block = self._graph.blocks[index]
        first = self._next_row
        if heading:
            self._headings.append(Heading(heading, first))
            first += 1
        self._next_row = first
        for position in range(block.start, block.end):
            self._lay(position, self._graph.nodes[position], last, first, block.start)
        if block.switch is None:
            return
        for case in block.switch.cases:
            options = " or ".join(map(repr, case.options))
            self._lay_block(case.block, dict(last), f"if {block.switch.read.name} is {options}")

    def _lay(self, position: int, node: Node, last: dict[int, int], first: int, start: int) -> None:
        if node.stream not in self._columns:
            self._columns[node.stream] = len(self._names)
            self._names.append(self._name(node))
        before = list(self._before(node, last))
        self._rows[position] = max([first, *(self._rows[at] + 1 for at in before)])
        for at in before:
            is_between = self._graph.nodes[at].stream != node.stream
            if not is_between and at < start - 1:
                continue  # it would run below the blocks of other options
            self._arrows.append(Arrow(at, position, is_between))
        last[node.stream] = position
        self._next_row = max(self._next_row, self._rows[position] + 1)

    def _name(self, node: Node) -> str:
        if isinstance(node, kinds.ForkItem):
            parent = self._names[self._columns[self._graph.nodes[node.fork].stream]]
            return f"{'' if parent == 'main' else parent + '.'}branch {node.index + 1}"
        return "part"

    def _before(self, node: Node, last: dict[int, int]) -> Iterator[int]:
        if isinstance(node, kinds.ForkItem):
            yield node.fork
        elif node.stream in last:
            yield last[node.stream]
        if isinstance(node, kinds.Variable):
            yield node.read.source
        elif isinstance(node, kinds.Join):
            yield from (last[item] for item in self._ways.items(node.fork))


def label_of(node: Node) -> str:
    """A node in a few words."""
    match node:
        case kinds.ConstantText(text=text):
            return _short(repr(text)[1:-1])
        case kinds.Argument(name=name):
            return f"{{{name}}}"
        case kinds.Variable(read=read):
            item = "" if read.item is None else f"[{read.item}]"
            return f"{read.name}{item}"
        case kinds.Gen(name=name):
            return f"gen {name or ''}".strip()
        case kinds.Select(name=name, options=options):
            return _short(f"select {name or ''}: {' | '.join(it.strip() for it in options)}")
        case kinds.Media(argument=argument, num_frames=num_frames):
            kind = "image" if num_frames is None else "video"
            return f"{kind} {{{argument}}}" if argument else kind
        case kinds.RoleBegin(role=role):
            return f"<{role}>"
        case kinds.RoleEnd():
            return "</>"
        case kinds.ScopeBegin(name=name) | kinds.ScopeEnd(name=name):
            return f"{'begin' if isinstance(node, kinds.ScopeBegin) else 'end'} {name}"
        case kinds.Fork(num=num):
            return f"fork {num}"
        case kinds.ForkItem(index=index):
            return f"item {index}"
        case kinds.Join(mode=mode):
            return "join" if mode == "gather_variable" else "join, append"
        case kinds.Begin():
            return "begin"
    return "end"


def _kind(node: Node) -> str:
    return type(node).__name__


def _short(text: str) -> str:
    return text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"
