"""The meta-tree (paper, data-parallel RadixAttention): prefixes, and which replicas hold them.

A path-compressed tree over keys of bytes, cut into digests of eight bytes each; one root for each
namespace, and nothing is shared between these. Which replicas hold an edge is one integer, a bit
for each replica, so that 512 of them cost a node 96 bytes and a comparison. It is only weakly
consistent with the replicas: what it says costs time where it is wrong. Its memory is bounded: the
least recently used leaves go.

Knows nothing of calls, load or replicas beyond their bits. Not for several threads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...core.common.digests import DIGEST

NODE_BYTES = 320  # of a node without its key, by measurement (benchmarks/router/decision.py)


class MetaNode:
    """An edge and the node at its lower end.

    key: of the edge; of a root, its namespace. holders: bits of the replicas that hold the edge.
    newer, older: its neighbours in the order of use; a node is used whenever one below it is.
    """

    __slots__ = ("children", "holders", "key", "newer", "older", "parent")

    def __init__(self, key: bytes, parent: MetaNode | None, holders: int) -> None:
        self.key = key
        self.parent = parent
        self.holders = holders
        self.children: dict[bytes, MetaNode] | None = None
        self.newer: MetaNode | None = None
        self.older: MetaNode | None = None


class Held(NamedTuple):
    """The replicas that hold the first `length` bytes of a key."""

    length: int
    holders: int


class MetaTree:
    """The meta-tree. max_bytes: memory that it may take, estimated from its nodes and keys.

    num_nodes: roots not counted. num_bytes: estimated memory. num_forgotten: nodes that were
    dropped for want of memory.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self.max_bytes = max_bytes
        self.num_nodes = self.num_bytes = self.num_forgotten = 0
        self._roots: dict[str, MetaNode] = {}
        self._ends = MetaNode(b"", None, 0)  # newer: the oldest node; older: the newest
        self._ends.newer = self._ends.older = self._ends
        self._cursor: MetaNode | None = None

    def find(self, namespace: str, key: bytes, among: int) -> list[Held]:
        """Who of the replicas `among` holds how much of a key: the longest prefix first, each with
        more replicas than the one before. Changes nothing."""
        found: list[Held] = []
        node = self._roots.get(namespace)
        offset, holders = 0, among
        while node is not None and node.children is not None:
            node = node.children.get(key[offset : offset + DIGEST])
            if node is None or not (held := holders & node.holders):
                break
            if held != holders and offset:
                found.append(Held(offset, holders))
            holders = held
            if not key.startswith(node.key, offset):
                offset += common_len(key, offset, node.key)
                break
            offset += len(node.key)
        if offset:
            found.append(Held(offset, holders))
        found.reverse()
        return found

    def add(self, namespace: str, key: bytes, holder: int) -> None:
        """The replica with this bit will hold a key. It is used now."""
        if not key:
            return
        node = self._roots.get(namespace)
        if node is None:
            node = self._roots[namespace] = MetaNode(namespace.encode(), None, 0)
        offset, size = 0, len(key)
        while offset < size:
            first = key[offset : offset + DIGEST]
            child = None if node.children is None else node.children.get(first)
            if child is None:
                node = self._add_leaf(node, key[offset:], holder)
                break
            if not key.startswith(child.key, offset):
                child = self._split(child, common_len(key, offset, child.key))
            child.holders |= holder
            node = child
            offset += len(child.key)
        self._use(node)
        if self.num_bytes > self.max_bytes:
            self._shrink()

    def drop(self, namespace: str, key: bytes, remaining: int, holder: int) -> None:
        """The replica with this bit holds no more than the first `remaining` bytes of a key."""
        node = self._roots.get(namespace)
        offset, size = 0, len(key)
        path: list[MetaNode] = []
        while node is not None and node.children is not None and offset < size:
            child = node.children.get(key[offset : offset + DIGEST])
            if child is None:
                break
            shared = common_len(key, offset, child.key)
            if offset < remaining < offset + shared and child.holders & holder:
                child = self._split(child, remaining - offset)
                shared = remaining - offset
            if offset >= remaining:
                path.append(child)
            if shared < len(child.key):
                break
            node = child
            offset += shared
        for child in reversed(path):
            self._release(child, holder)

    def sweep(self, holders: int, max_nodes: int) -> bool:
        """Go on to take these bits from all nodes, `max_nodes` of them at a time, from the least
        recently used one on; whether it is through. Between its parts the tree may change."""
        nodes = self._oldest(self._cursor or self._ends.newer, max_nodes)
        after = nodes[-1].newer if nodes else self._ends
        self._cursor = None if after is self._ends else after
        for node in nodes:
            self._release(node, holders)
        return self._cursor is None

    def forget_oldest(self, holder: int, num_bytes: int, max_nodes: int) -> int:
        """Take this bit from the least recently used of the oldest `max_nodes` nodes until so many
        bytes of keys are gone; returns how many are."""
        gone = 0
        for node in self._oldest(self._ends.newer, max_nodes):
            if gone >= num_bytes:
                break
            if node.newer is not None and node.holders & holder:
                gone += len(node.key)
                self._release(node, holder)
        return gone

    def _oldest(self, first: MetaNode | None, count: int) -> list[MetaNode]:
        """So many nodes in the order of use, from this one on."""
        found: list[MetaNode] = []
        while first is not None and first is not self._ends and len(found) < count:
            found.append(first)
            first = first.newer
        return found

    def _release(self, node: MetaNode, holders: int) -> None:
        if node.newer is not None:  # else it is gone
            node.holders &= ~holders
            self._prune(node)

    def clear(self) -> None:
        """Forget everything."""
        self._roots.clear()
        self._ends.newer = self._ends.older = self._ends
        self._cursor = None
        self.num_nodes = self.num_bytes = 0

    def entries(self) -> Iterator[tuple[str, bytes, int]]:
        """Each node as its namespace, its whole key and its holders. For tests."""
        for namespace, root in self._roots.items():
            pending = [(b"", child) for child in (root.children or {}).values()]
            while pending:
                above, node = pending.pop()
                key = above + node.key
                yield namespace, key, node.holders
                pending += [(key, child) for child in (node.children or {}).values()]

    def check(self) -> None:
        """Assert every invariant."""
        order: dict[MetaNode, int] = {}
        node = self._ends.newer
        while node is not self._ends:
            assert node is not None and node.older is not None and node.older.newer is node
            order[node] = len(order)
            node = node.newer
        assert len(order) == self.num_nodes, "num_nodes is wrong"
        assert self.num_bytes == sum(map(_size, order)), "num_bytes is wrong"
        for node in order:
            above = node.parent
            assert above is not None and above.children is not None
            assert above.children[node.key[:DIGEST]] is node, "a node is not its parent's"
            assert node.key and len(node.key) % DIGEST == 0, "a key is cut within a digest"
            assert above.parent is None or order[above] > order[node], "a parent goes first"
            assert node.children != {}, "an empty table of children"
        assert all(root.children for root in self._roots.values()), "a root is bare"

    def _add_leaf(self, parent: MetaNode, key: bytes, holders: int) -> MetaNode:
        leaf = MetaNode(key, parent, holders)
        self._attach(parent, leaf)
        self._link(leaf, self._ends)
        self.num_nodes += 1
        self.num_bytes += _size(leaf)
        return leaf

    def _split(self, lower: MetaNode, offset: int) -> MetaNode:
        """Split an edge; returns the new upper half, which is used when the lower one is."""
        if offset == len(lower.key):
            return lower
        above = lower.parent
        assert above is not None
        upper = MetaNode(lower.key[:offset], above, lower.holders)
        lower.key = lower.key[offset:]
        lower.parent = upper
        self._attach(above, upper)
        self._attach(upper, lower)
        assert lower.newer is not None
        self._link(upper, lower.newer)
        self.num_nodes += 1
        self.num_bytes += NODE_BYTES
        return upper

    def _attach(self, above: MetaNode, node: MetaNode) -> None:
        if above.children is None:
            above.children = {}
        above.children[node.key[:DIGEST]] = node

    def _use(self, node: MetaNode) -> None:
        """Make a node and all above it the newest, children before their parents."""
        at: MetaNode | None = node
        while at is not None and at.parent is not None:
            older, newer = at.older, at.newer
            assert older is not None and newer is not None
            older.newer, newer.older = newer, older
            if at is self._cursor:
                self._cursor = newer
            self._link(at, self._ends)
            at = at.parent

    def _link(self, node: MetaNode, newer: MetaNode) -> None:
        """Put a node in front of this one in the order of use; the ends: it is the newest."""
        older = newer.older
        assert older is not None
        node.older, node.newer = older, newer
        older.newer = newer.older = node

    def _prune(self, node: MetaNode) -> None:
        """Remove a node that nobody holds and that has nothing below it, and then its parent."""
        while not node.holders and not node.children and node.parent is not None:
            node = self._remove(node)

    def _remove(self, node: MetaNode) -> MetaNode:
        """Remove a leaf; returns its parent."""
        above, older, newer = node.parent, node.older, node.newer
        assert above is not None and above.children is not None
        assert older is not None and newer is not None
        del above.children[node.key[:DIGEST]]
        older.newer, newer.older = newer, older
        if node is self._cursor:
            self._cursor = newer
        node.older = node.newer = None
        self.num_nodes -= 1
        self.num_bytes -= _size(node)
        if not above.children:
            above.children = None
            if above.parent is None:
                del self._roots[above.key.decode()]
        return above

    def _shrink(self) -> None:
        """Drop the least recently used leaves until the memory suffices."""
        while self.num_bytes > self.max_bytes:
            oldest = self._ends.newer
            assert oldest is not None
            if oldest is self._ends or oldest.children:
                return
            self._remove(oldest)
            self.num_forgotten += 1


def common_len(key: bytes, start: int, edge: bytes) -> int:
    """Bytes of whole digests that key[start:] and an edge have in common, by bisection, as each
    comparison is one `memcmp`."""
    low, high = 0, min(len(key) - start, len(edge))
    if key.startswith(edge[:high], start):
        return high
    while high - low > DIGEST:  # the first `low` bytes agree, the first `high` do not
        middle = (low + high) // (2 * DIGEST) * DIGEST
        if key.startswith(edge[low:middle], start + low):
            low = middle
        else:
            high = middle
    return low


def _size(node: MetaNode) -> int:
    return NODE_BYTES + len(node.key)
