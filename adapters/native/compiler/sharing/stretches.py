"""The texts of a graph that may be reordered: those at the end of the constant prefix of a stream.

Behind an argument, or an answer, nothing would be shared, whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...movement.cuts import cut
from ...movement.parts import Piece, Placeholder, Stretch
from ...movement.references import is_referring
from ...movement.shapes import is_open_text
from ..graph.graph import Graph
from ..graph.nodes import (
    CALLS,
    Argument,
    Begin,
    ConstantText,
    Fork,
    ForkItem,
    Join,
    Media,
    Node,
    RoleBegin,
    RoleEnd,
    Variable,
)


@dataclass(frozen=True, slots=True)
class Found:
    """A stretch of a stream, with the positions of its nodes.

    before: the constant text of the same message in front of it.
    """

    stream: int
    positions: tuple[int, ...]
    stretch: Stretch
    before: str = ""


@dataclass(slots=True)
class _Prefix:
    """A stream on the way through its nodes: whether all is constant so far, the text of the open
    message, and the positions of the texts since the last other node."""

    is_constant: bool = True
    before: str = ""
    positions: list[int] = field(default_factory=list)


def find(graph: Graph) -> Iterator[Found]:
    """The stretches whose order decides where the constant prefix of a stream ends."""
    nodes, streams = graph.nodes[: graph.blocks[0].end], {0: _Prefix()}
    for position, node in enumerate(nodes):
        if isinstance(node, ForkItem):
            opened = streams[nodes[node.fork].stream]
            streams[node.stream] = replace(opened, positions=[])
        elif isinstance(node, Begin):
            streams[node.stream] = _Prefix()
        elif _is_text(node):
            streams[node.stream].positions.append(position)
        else:
            yield from _ended(nodes, node.stream, streams[node.stream], node)
            _go_past(streams[node.stream], node)
    for stream, prefix in streams.items():
        yield from _ended(nodes, stream, prefix, None)


def _ended(
    nodes: Sequence[Node], stream: int, prefix: _Prefix, following: Node | None
) -> Iterator[Found]:
    """The stretch that ends here, if it is the first with an argument."""
    positions, prefix.positions = tuple(prefix.positions), []
    if not prefix.is_constant or not positions:
        return
    pieces = [_piece(position, nodes[position]) for position in positions]
    if all(isinstance(piece, str) for piece in pieces):
        prefix.before += "".join(map(str, pieces))
        return
    prefix.is_constant = False
    stretch = cut(pieces, is_answered=following is not None and not isinstance(following, RoleEnd))
    later = _following_texts(nodes, stream, positions[-1])
    stretch = replace(
        stretch,
        is_continued=is_open_text(prefix.before) or _refers_to(prefix.before, stretch),
        is_referred=any(map(is_referring, later)),
    )
    yield Found(stream, positions, stretch, prefix.before)


def _refers_to(before: str, stretch: Stretch) -> bool:
    """Whether a stretch begins with what refers to the text in front of it."""
    return bool(before.strip()) and is_referring(next(iter(stretch.parts)).text)


def _go_past(prefix: _Prefix, node: Node) -> None:
    if isinstance(node, RoleBegin | RoleEnd):
        prefix.before = ""
    elif isinstance(node, (*CALLS, Join)):
        prefix.is_constant = False


def _following_texts(nodes: Sequence[Node], stream: int, last: int) -> Iterator[str]:
    """The next text of the same message, in this stream and in branches of it."""
    streams = {stream}
    for position in range(last + 1, len(nodes)):
        node = nodes[position]
        if isinstance(node, ForkItem) and nodes[node.fork].stream in streams:
            streams.add(node.stream)
        if node.stream not in streams or isinstance(node, Fork | ForkItem):
            continue
        if isinstance(node, ConstantText):
            yield node.text
        if isinstance(node, (ConstantText, Argument, Variable, RoleEnd, *CALLS)):
            streams.discard(node.stream)
        if not streams:
            return


def _is_text(node: Node) -> bool:
    is_medium = isinstance(node, Media) and node.argument is not None
    return is_medium or isinstance(node, ConstantText | Argument | Variable)


def _piece(position: int, node: Node) -> Piece:
    match node:
        case ConstantText():
            return node.text
        case Argument():
            return Placeholder(node.name, position)
        case Variable():
            return Placeholder(node.read.name, position)
    return Placeholder("image", position)
