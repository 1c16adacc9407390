"""Constant prefixes: what every run of a program begins with, whatever its arguments are."""

from __future__ import annotations

from ..graph.graph import Graph
from ..graph.nodes import ConstantText, Media, Node, RoleBegin, RoleEnd


def constant_prefix(graph: Graph, stream: int = 0) -> tuple[Node, ...]:
    """The nodes of a stream before the first one that is not known, or that is in one block only;
    they are in every prompt of it. A role that begins behind the last text is left out."""
    found: list[Node] = []
    first = graph.blocks[0]
    for node in graph.nodes[first.start : first.end]:
        if node.stream != stream:
            continue
        is_known = isinstance(node, ConstantText | RoleBegin | RoleEnd)
        if not is_known and not (isinstance(node, Media) and node.data is not None):
            break
        found.append(node)
    while found and isinstance(found[-1], RoleBegin):
        found.pop()
    return tuple(found)


def text_of(nodes: tuple[Node, ...]) -> str:
    """The texts of a prefix."""
    return "".join(node.text for node in nodes if isinstance(node, ConstantText))
