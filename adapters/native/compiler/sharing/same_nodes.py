"""The last check of a moved graph, whoever made it: it has the same nodes exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from ...movement.checks import Refusal
from ..graph.graph import Graph
from ..graph.nodes import TEXTS, ConstantText, ForkItem, Join, Node, Variable


def difference(before: Graph, after: Graph) -> Refusal | None:
    """Why two graphs are not made of the same nodes; None: they are.

    All nodes but constant texts come in the same order and refer to the same ones. Between two
    primitives of a stream the constant texts have the same words, in whatever order; blanks do not
    count.
    """
    for old, new in zip_longest(_fixed(before), _fixed(after)):
        if old != new:
            return Refusal("same nodes", f"{_shown(old)} became {_shown(new)}")
    for stream in {node.stream for node in before.nodes}:
        for old_words, new_words in zip_longest(_words(before, stream), _words(after, stream)):
            if old_words != new_words:
                changed = (old_words or Counter()) - (new_words or Counter())
                lost = next(iter(changed), "")
                return Refusal("same nodes", f"a constant text was altered near {lost!r}")
    return None


def _fixed(graph: Graph) -> Iterator[Node]:
    """All nodes but constant texts, numbered among themselves."""
    places, num = list[int](), 0
    for node in graph.nodes:
        places.append(num)
        num += not isinstance(node, ConstantText)
    for node in graph.nodes:
        if isinstance(node, ConstantText):
            continue
        if isinstance(node, TEXTS):
            node = replace(node, continues=False)
        if isinstance(node, Variable):
            node = replace(node, read=replace(node.read, source=places[node.read.source]))
        if isinstance(node, ForkItem | Join):
            node = replace(node, fork=places[node.fork])
        yield node


def _words(graph: Graph, stream: int) -> Iterator[Counter[str]]:
    """The words of the constant texts of a stream, from one primitive to the next."""
    found, text = Counter[str](), ""
    for node in graph.nodes:
        if node.stream != stream:
            continue
        if isinstance(node, ConstantText):
            text += node.text
            continue
        found.update(text.split())
        text = ""
        if not isinstance(node, TEXTS):
            yield found
            found = Counter()
    found.update(text.split())
    yield found


def _shown(node: Node | None) -> str:
    return "nothing" if node is None else f"{node!r:.80}"
