"""Which nodes of the tree hold log-probabilities of their tokens, within a budget of bytes.

They are a copy of what could be computed again: the node used least recently loses its own when the
budget is spent, and keeps its KV. They stay with a node whose KV is on the host.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import takewhile

from .logprobs import Logprobs
from .node import Node, path_up

OVERHEAD = 640  # bytes of four array headers and a place in the order, for each node


class LogprobStore:
    """capacity: bytes that all of them may take; 0: none are kept. num_bytes: that they take."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_bytes = 0
        self._nodes: OrderedDict[Node, int] = OrderedDict()  # least recently used first -> bytes

    def write(self, lowest: Node, start: int, found: Logprobs) -> None:
        """Keep those of the tokens from position `start` on, which are on the path to `lowest`."""
        end = start + len(found)
        for node in takewhile(lambda it: it.end > start, path_up(lowest)):
            first = node.end - node.size
            low, high = max(start, first), min(end, node.end)
            if low < high and self.capacity:
                if node.logprobs is None:
                    node.logprobs = Logprobs.unknown(node.size)
                node.logprobs.write(low - first, found[low - start : high - start])
                self._count(node)
        self._shrink()

    def use(self, nodes: Iterable[Node]) -> None:
        """Let these nodes lose theirs last, the first of them last of all."""
        for node in nodes:
            self._nodes.move_to_end(node)

    def split(self, upper: Node, lower: Node) -> None:
        """An edge was cut in two: each half has its part."""
        if lower.logprobs is None:
            return
        num_upper, whole = upper.size, lower.logprobs
        upper.logprobs, lower.logprobs = whole[:num_upper], whole[num_upper:]
        self._count(lower)
        self._count(upper)
        self._shrink()

    def shorten(self, node: Node) -> None:
        """A node has lost its last tokens."""
        if node.logprobs is not None:
            node.logprobs = node.logprobs[: node.size]
            self._count(node)

    def drop(self, node: Node) -> None:
        """Forget those of a node, if it has any."""
        if node.logprobs is not None:
            node.logprobs = None
            self.num_bytes -= self._nodes.pop(node)

    def check(self, nodes: list[Node]) -> None:
        """Assert that all that is kept belongs to the tree's nodes, is counted once, and fits."""
        owners = [node for node in nodes if node.logprobs is not None]
        assert set(owners) == set(self._nodes), "log-probabilities are kept of nodes that are gone"
        for node in owners:
            assert node.logprobs is not None
            node.logprobs.check(node.size)
        total = sum(map(_num_bytes, owners))
        assert self.num_bytes == total, f"log-probabilities take {total}, not {self.num_bytes}"
        assert total <= self.capacity, f"log-probabilities take {total} of {self.capacity} bytes"

    def _count(self, node: Node) -> None:
        num_bytes = _num_bytes(node)
        self.num_bytes += num_bytes - self._nodes.get(node, 0)
        self._nodes[node] = num_bytes
        self._nodes.move_to_end(node)

    def _shrink(self) -> None:
        while self.num_bytes > self.capacity:
            self.drop(next(iter(self._nodes)))


def _num_bytes(node: Node) -> int:
    assert node.logprobs is not None
    return OVERHEAD + node.logprobs.num_bytes
