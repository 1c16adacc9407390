"""A radix tree over texts: what a new text shares with those seen before. Bounded, and not safe
for threads by itself. It knows nothing of prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
NODE_SIZE = 200  # characters' worth of memory that a node takes beside its text


@dataclass(slots=True, eq=False)
class Node(Generic[T]):
    """A node: the text of its edge, and how many characters lead to its end.

    mark: what was noted of this very beginning. used: when it was, by the tree's clock.
    """

    text: str
    end: int
    parent: Node[T] | None
    used: int = 0
    children: dict[str, Node[T]] = field(default_factory=dict)
    mark: T | None = None


class Known(NamedTuple):
    """How many first characters a text has in common with one seen before, and whether
    that one goes on from there in another way: then the two fork, else one continues the other."""

    length: int
    is_fork: bool


class Seen(Generic[T]):
    """The texts seen, by namespace. Of more than `capacity` characters, where a node counts for as
    many as it takes memory, the least recently used go first.

    size: characters kept now, counted so.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._tops: dict[str, Node[T]] = {}
        self._clock = 0
        self.size = 0

    def add(self, namespace: str, text: str) -> Known:
        """Take in a text; gives what was known of it. One of more than a quarter of the capacity is
        not kept."""
        node, matched = self._walk(self._top(namespace), text)
        known = Known(matched, matched < node.end or bool(node.children))
        if matched < len(text) <= self._capacity // 4:
            parent = self._split(node, matched)
            leaf = Node(text[matched:], len(text), parent, self._clock)
            parent.children[text[matched]] = leaf
            self.size += len(leaf.text) + NODE_SIZE
        if self.size > self._capacity:
            self._shrink(self._capacity * 3 // 4)
        return known

    def marks(self, namespace: str, text: str) -> Iterator[T]:
        """What was noted of beginnings of a text, of the longest first."""
        found, matched = self._walk(self._top(namespace), text)
        node: Node[T] | None = found
        while node is not None:
            if node.mark is not None and node.end <= matched:
                yield node.mark
            node = node.parent

    def mark(self, namespace: str, text: str, mark: T) -> None:
        """Note something of a beginning that was seen; nothing if it was not, or is forgotten."""
        node, matched = self._walk(self._top(namespace), text)
        if matched == len(text):
            self._split(node, matched).mark = mark

    def _top(self, namespace: str) -> Node[T]:
        top = self._tops.get(namespace)
        if top is None:
            top = self._tops[namespace] = Node("", 0, None)
            self.size += len(namespace) + NODE_SIZE
        return top

    def _walk(self, top: Node[T], text: str) -> tuple[Node[T], int]:
        """The node on whose edge, or at whose end, the longest known beginning of `text` ends, and
        how long that is."""
        self._clock += 1
        node = top
        node.used = self._clock
        while node.end < len(text) and (child := node.children.get(text[node.end])) is not None:
            child.used = self._clock
            if not text.startswith(child.text, node.end):
                return child, node.end + common_len(child.text, text[node.end : child.end])
            node = child
        return node, node.end

    def _split(self, node: Node[T], length: int) -> Node[T]:
        """The node that ends after `length` characters, made where they end inside an edge."""
        if node.end == length:
            return node
        assert node.parent is not None
        offset = len(node.text) - (node.end - length)
        below = {node.text[offset]: node}
        above = Node(node.text[:offset], length, node.parent, node.used, below)
        node.parent.children[node.text[0]] = above
        node.text, node.parent = node.text[offset:], above
        self.size += NODE_SIZE
        return above

    def _shrink(self, goal: int) -> None:
        """Forget leaves, the least used first, and what becomes a leaf by that."""
        while self.size > goal and (leaves := sorted(self._leaves(), key=lambda leaf: leaf.used)):
            for leaf in leaves:
                if self.size <= goal:
                    break
                assert leaf.parent is not None
                del leaf.parent.children[leaf.text[0]]
                self.size -= len(leaf.text) + NODE_SIZE
        for namespace in [space for space, top in self._tops.items() if not top.children]:
            del self._tops[namespace]
            self.size -= len(namespace) + NODE_SIZE

    def _leaves(self) -> Iterator[Node[T]]:
        pending = list(self._tops.values())
        for node in pending:
            pending += node.children.values()
            if not node.children and node.parent is not None:
                yield node


def common_len(first: str, second: str) -> int:
    """Length of the common beginning, by halving: comparing slices is much faster than looping."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
