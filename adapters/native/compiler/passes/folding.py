"""Constant folding: texts that are known beside each other become one, and a select's variable is
known where only one of its options leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..graph.graph import Graph
from ..graph.moving import rebuilt
from ..graph.nodes import TEXTS, ConstantText, Node, Variable

Pairs: TypeAlias = list[tuple[int, Node]]


@dataclass(frozen=True, slots=True)
class Folded:
    """The graph, how many nodes it has fewer, and how many variables are known in it."""

    graph: Graph
    num_merged: int
    num_known: int


def folded(graph: Graph) -> Folded:
    """The graph with fewer text nodes; its streams have the same texts."""
    known = _known(graph)
    blocks, num_known = [], 0
    for index, block in enumerate(graph.blocks):
        pairs: Pairs = []
        merged: dict[int, list[str]] = {}
        last: dict[int, int] = {}
        for position in range(block.start, block.end):
            node = _constant(graph.nodes[position], known[index])
            num_known += node is not graph.nodes[position]
            _put(pairs, merged, last, position, node)
        for at, texts in merged.items():
            found_at, node = pairs[at]
            assert isinstance(node, ConstantText)
            pairs[at] = found_at, replace(node, text="".join(texts))
        blocks.append(pairs)
    found = rebuilt(graph, blocks)
    return Folded(found, len(graph.nodes) - len(found.nodes), num_known)


def _known(graph: Graph) -> list[dict[int, str]]:
    """For each block the selects whose option is known there, by position."""
    found: list[dict[int, str]] = [{} for _ in graph.blocks]
    for index, block in enumerate(graph.blocks):
        if block.switch is None:
            continue
        for case in block.switch.cases:
            source = block.switch.read.source
            chosen = {source: case.options[0]} if len(case.options) == 1 else {}
            found[case.block] = {**found[index], **chosen}
    return found


def _constant(node: Node, known: Mapping[int, str]) -> Node:
    if not isinstance(node, Variable) or node.read.source not in known:
        return node
    option = known[node.read.source]
    forms = {"text": option, "str": option, "repr": repr(option)}
    text = forms[node.form] if node.form in forms else format(option, node.spec)
    return ConstantText(node.stream, text, node.continues)


def _put(
    pairs: Pairs, merged: dict[int, list[str]], last: dict[int, int], position: int, node: Node
) -> None:
    """Append a node; a constant goes to the text before it on its stream. merged: the texts of a
    constant to which others went, by its index. last: the indices of the last nodes of the
    streams."""
    before = last.get(node.stream)
    if isinstance(node, ConstantText) and before is not None:
        other = pairs[before][1]
        if isinstance(other, ConstantText):
            merged.setdefault(before, [other.text]).append(node.text)
            return
        if isinstance(other, TEXTS) and before == len(pairs) - 1:
            node = replace(node, continues=True)
    elif isinstance(node, TEXTS) and node.continues and before != len(pairs) - 1:
        node = replace(node, continues=False)
    last[node.stream] = len(pairs)
    pairs.append((position, node))
