"""Nodes that have moved: what they refer to, at its new position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from .graph import Graph
from .nodes import ForkItem, Join, Node, Read, Variable
from .values import Composed, Inserted, Listed, Mapped, Set, State, Value

Positions: TypeAlias = Sequence[int] | Mapping[int, int]
Streams: TypeAlias = Mapping[int, int]


def rebuilt(graph: Graph, blocks: Sequence[Sequence[tuple[int, Node]]]) -> Graph:
    """The graph with other nodes in its blocks: pairs of the position that a node had, and the
    node, which still refers to the others by the positions that they had. Raises InvalidGraph."""
    old = [position for pairs in blocks for position, _ in pairs]
    positions = {position: index for index, position in enumerate(old)}
    streams = _Same()
    nodes = tuple(moved(node, positions, streams) for pairs in blocks for _, node in pairs)
    found, at = [], 0
    for block, pairs in zip(graph.blocks, blocks, strict=True):
        switch, value = block.switch, block.value
        if switch is not None:
            switch = replace(switch, read=moved_read(switch.read, positions, streams))
        if value is not None:
            value = moved_value(value, positions, streams)
        found.append(replace(block, start=at, end=at + len(pairs), switch=switch, value=value))
        at += len(pairs)
    return replace(graph, nodes=nodes, blocks=tuple(found))


class _Same(dict[int, int]):
    def __missing__(self, stream: int) -> int:
        return stream


def moved(node: Node, positions: Positions, streams: Streams) -> Node:
    """The node with other positions and streams for those that it refers to."""
    found = replace(node, stream=streams[node.stream])
    if isinstance(found, ForkItem | Join):
        return replace(found, fork=positions[found.fork])
    if isinstance(found, Variable):
        return replace(found, read=moved_read(found.read, positions, streams))
    return found


def moved_read(read: Read, positions: Positions, streams: Streams) -> Read:
    """As `moved`, of a read."""
    return replace(read, stream=streams[read.stream], source=positions[read.source])


def moved_value(value: Value, positions: Positions, streams: Streams) -> Value:
    """As `moved`, of a returned value."""
    match value:
        case Set(read=read):
            return Set(moved_read(read, positions, streams))
        case State(stream=stream):
            return State(streams[stream])
        case Listed(items=items, is_tuple=is_tuple):
            found = (moved_value(item, positions, streams) for item in items)
            return Listed(tuple(found), is_tuple)
        case Mapped(pairs=pairs):
            moved_pairs = ((key, moved_value(item, positions, streams)) for key, item in pairs)
            return Mapped(tuple(moved_pairs))
        case Composed(parts=parts):
            return Composed(tuple(_moved_part(part, positions, streams) for part in parts))
    return value


def _moved_part(part: str | Inserted, positions: Positions, streams: Streams) -> str | Inserted:
    if isinstance(part, str) or not isinstance(part.value, Set):
        return part
    return replace(part, value=Set(moved_read(part.value.read, positions, streams)))
