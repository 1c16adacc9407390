"""The graph with its texts in another order: arguments stay in place, text is put around them.

Positions of nodes change with it, and so does all that refers to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from .....core.api.protocol import InvalidCall
from ...movement.parts import Part, Placeholder
from ..graph.graph import Graph
from ..graph.moving import rebuilt
from ..graph.nodes import TEXTS, ConstantText, Node
from .stretches import Found

N = TypeVar("N", bound=Node)


def rewritten(graph: Graph, orders: Sequence[tuple[Found, Sequence[Part]]]) -> Graph:
    """The graph with these stretches in these orders. Raises InvalidGraph where it would be none,
    as with a variable ahead of what sets it."""
    replaced: dict[int, tuple[Node, ...]] = {}
    for found, order in orders:
        replaced.update(_replaced(graph.nodes, found, order))
    return rebuilt(
        graph,
        [
            [
                (position, node)
                for position in range(block.start, block.end)
                for node in replaced.get(position, (graph.nodes[position],))
            ]
            for block in graph.blocks
        ],
    )


def _replaced(
    nodes: Sequence[Node], found: Found, order: Sequence[Part]
) -> Iterator[tuple[int, tuple[Node, ...]]]:
    """What stands in the place of each node of a stretch, to which no other node refers."""
    texts, kept, text = dict[int, str](), list[int](), ""
    for piece in found.stretch.pieces(order):
        if isinstance(piece, Placeholder):
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
