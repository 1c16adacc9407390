"""The graph with its texts in another order: arguments stay in place, text is put around them.

Positions of nodes change with it, and so does all that refers to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from .....core.api.protocol import InvalidCall
from ...movement.parts import Hole, Part
from ..graph.blocks import Block
from ..graph.graph import Graph
from ..graph.nodes import TEXTS, ConstantText, Node
from ..paths import moved, moved_read, moved_value
from .stretches import Found

N = TypeVar("N", bound=Node)


def rewritten(graph: Graph, orders: Sequence[tuple[Found, Sequence[Part]]]) -> Graph:
    """The graph with these stretches in these orders. Raises InvalidGraph where it would be none,
    as with a variable ahead of what sets it."""
    replaced: dict[int, tuple[Node, ...]] = {}
    for found, order in orders:
        replaced.update(_replaced(graph.nodes, found, order))
    nodes, starts, places = list[Node](), list[int](), list[int]()
    for position, node in enumerate(graph.nodes):
        starts.append(len(nodes))
        nodes += replaced.get(position, (node,))
        places.append(len(nodes) - 1)
    starts.append(len(nodes))
    streams = {info.index: info.index for info in graph.streams}
    return replace(
        graph,
        nodes=tuple(moved(node, places, streams) for node in nodes),
        blocks=tuple(_moved_block(block, starts, places, streams) for block in graph.blocks),
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
    for index, position in enumerate(found.positions):
        new = list[Node]()
        if index and position > found.positions[index - 1] + 1:
            left = None
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


def _moved_block(
    block: Block, starts: Sequence[int], places: Sequence[int], streams: dict[int, int]
) -> Block:
    switch = block.switch
    if switch is not None:
        switch = replace(switch, read=moved_read(switch.read, places, streams))
    value = None if block.value is None else moved_value(block.value, places, streams)
    return Block(starts[block.start], starts[block.end], switch, value)
