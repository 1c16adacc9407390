"""The graph with its texts in another order: arguments stay in place, text is put around them.

Positions of nodes change with it, and so does all that refers to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from .....core.api.protocol import InvalidCall
from ...movement.parts import Hole, Part
from ..graph.blocks import Block, Switch
from ..graph.graph import Graph
from ..graph.nodes import TEXTS, ConstantText, ForkItem, Join, Node, Read, Variable
from ..graph.values import Composed, Inserted, Listed, Mapped, Set, Value
from .stretches import Found

N = TypeVar("N", bound=Node)


def rewritten(graph: Graph, orders: Sequence[tuple[Found, Sequence[Part]]]) -> Graph:
    """The graph with these stretches in these orders. Raises InvalidGraph where it would be none,
    as with a variable ahead of what sets it."""
    replaced: dict[int, tuple[Node, ...]] = {}
    for found, order in orders:
        replaced.update(_replaced(graph.nodes, found, order))
    nodes, starts, places = list[Node](), list[int](), dict[int, int]()
    for position, node in enumerate(graph.nodes):
        starts.append(len(nodes))
        nodes += replaced.get(position, (node,))
        places[position] = max(len(nodes) - 1, 0)
    starts.append(len(nodes))
    return replace(
        graph,
        nodes=tuple(_moved(node, places) for node in nodes),
        blocks=tuple(_moved_block(block, starts, places) for block in graph.blocks),
    )


def _replaced(
    nodes: Sequence[Node], found: Found, order: Sequence[Part]
) -> Iterator[tuple[int, tuple[Node, ...]]]:
    """What stands in the place of each node of a stretch; what others refer to comes last."""
    texts, kept, text = dict[int, str](), list[int](), ""
    for piece in found.stretch.pieces(order):
        if isinstance(piece, Hole):
            texts[piece.node], text = text, ""
            kept.append(piece.node)
        else:
            text += piece
    if kept != sorted(kept):
        raise InvalidCall("order", kept, "arguments in the order of the program")
    left: Node | None = None
    for position in found.positions:
        new = list[Node]()
        if position in texts:
            new += _text(found.stream, texts[position], left)
            new.append(_continued(nodes[position], new[-1] if new else left))
        if position == found.positions[-1]:
            new += _text(found.stream, text, new[-1] if new else left)
        yield position, tuple(new)
        left = new[-1] if new else left


def _text(stream: int, text: str, left: Node | None) -> list[Node]:
    return [_continued(ConstantText(stream, text), left)] if text else []


def _continued(node: N, left: Node | None) -> N:
    """The node, said to go on the text on its left, if there is one."""
    if not isinstance(node, TEXTS):
        return node
    return replace(node, continues=isinstance(left, TEXTS))


def _moved(node: N, places: Mapping[int, int]) -> N:
    """The node, with the new positions of what it refers to."""
    if isinstance(node, Variable):
        return replace(node, read=_moved_read(node.read, places))
    if isinstance(node, ForkItem | Join):
        return replace(node, fork=places[node.fork])
    return node


def _moved_read(read: Read, places: Mapping[int, int]) -> Read:
    return replace(read, source=places[read.source])


def _moved_block(block: Block, starts: Sequence[int], places: Mapping[int, int]) -> Block:
    switch = block.switch
    if switch is not None:
        switch = Switch(_moved_read(switch.read, places), switch.cases)
    value = None if block.value is None else _moved_value(block.value, places)
    return Block(starts[block.start], starts[block.end], switch, value)


def _moved_value(value: Value, places: Mapping[int, int]) -> Value:
    match value:
        case Set(read):
            return Set(_moved_read(read, places))
        case Composed(parts):
            return Composed(tuple(_moved_part(part, places) for part in parts))
        case Listed(items, is_tuple):
            return Listed(tuple(_moved_value(item, places) for item in items), is_tuple)
        case Mapped(pairs):
            return Mapped(tuple((key, _moved_value(item, places)) for key, item in pairs))
    return value


def _moved_part(part: str | Inserted, places: Mapping[int, int]) -> str | Inserted:
    if isinstance(part, Inserted) and isinstance(part.value, Set):
        return replace(part, value=Set(_moved_read(part.value.read, places)))
    return part
