"""One node of the radix tree, and read-only functions of it.

Edges are compared as bytes (four for each token), so that a whole edge costs one `memcmp`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..api.batch import Ints
from ..api.protocol import NodeView
from .logprobs import Logprobs

WIDTH = 4  # bytes of one token in a key
NO_SLOTS: Ints = np.empty(0, np.int32)


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One edge and the node at its lower end; a root, above all that one namespace has cached, has
    neither parent nor edge.

    namespace: whose tokens.
    key, slots: the edge's tokens (as bytes) and where their keys and values are in the pool; no
      slots if they are on the host only.
    host: where they are on the host; None: nowhere.
    logprobs: log-probabilities of the edge's tokens; None: none are kept.
    end: depth of the node in tokens, its own edge included.
    children: first token (as bytes) of an edge -> its node.
    lock_count: leases whose path runs through this node.
    last_used: the tree's clock when it was last locked or unlocked.
    hits: how often it was locked again since it was made.
    is_expedited: whether it goes before all that is not, as nobody is expected to use it again.
    """

    id: int
    namespace: str
    parent: Node | None = None
    key: bytes = b""
    slots: Ints = field(default_factory=lambda: NO_SLOTS)
    end: int = 0
    host: Ints | None = None
    logprobs: Logprobs | None = None
    children: dict[bytes, Node] = field(default_factory=dict)
    lock_count: int = 0
    last_used: int = 0
    hits: int = 0
    is_expedited: bool = False

    @property
    def size(self) -> int:
        """Tokens of the edge."""
        return len(self.key) // WIDTH

    @property
    def is_in_pool(self) -> bool:
        """Whether its tokens are in the pool."""
        return len(self.slots) > 0


class Reuse(NamedTuple):
    """Tokens that one sequence alone had when it ended, and those of them that were used since."""

    own: int
    reused: int


class Descent(NamedTuple):
    """Where a key leads: to the end of `node`, then `inside` bytes into `edge` (if not None)."""

    node: Node
    edge: Node | None
    inside: int

    @property
    def length(self) -> int:
        """Tokens found."""
        return self.node.end + self.inside // WIDTH


def descend(node: Node, key: bytes) -> Descent:
    """Follow `key` down from the end of `node`, through which it passes. Changes nothing."""
    offset, size = node.end * WIDTH, len(key)
    while offset < size:
        child = node.children.get(key[offset : offset + WIDTH])
        if child is None:
            break
        if not key.startswith(child.key, offset):
            return Descent(node, child, _common_prefix_len(key, offset, child.key))
        node = child
        offset += len(child.key)
    return Descent(node, None, 0)


def _common_prefix_len(key: bytes, start: int, edge: bytes) -> int:
    """Bytes of whole tokens that key[start:] and an edge that it leaves have in common: bisection,
    as each comparison is one `memcmp`."""
    low, high = WIDTH, min(len(key) - start, len(edge))
    if key.startswith(edge[:high], start):
        return high
    while high - low > WIDTH:  # the first `low` bytes agree, the first `high` do not
        middle = (low + high) // (2 * WIDTH) * WIDTH
        if key.startswith(edge[low:middle], start + low):
            low = middle
        else:
            high = middle
    return low


def descendants(root: Node) -> Iterator[Node]:
    """Every node below this one, parents before children."""
    pending = list(root.children.values())
    while pending:
        node = pending.pop()
        pending.extend(node.children.values())
        yield node


def path_up(node: Node, above: Node | None = None) -> Iterator[Node]:
    """This node, its parent and so on, up to the child of a root, or of `above`."""
    while node is not above and node.parent is not None:
        yield node
        node = node.parent


def is_in_tree(node: Node) -> bool:
    """Whether a node was not evicted, at least not from the host."""
    return node.parent is None or node.parent.children.get(node.key[:WIDTH]) is node


def idle_from(node: Node | None, seen: set[Node]) -> int:
    """Where the end of a node's path begins that nothing locks and that is not in `seen`, which
    gets all of it."""
    path = () if node is None else tuple(path_up(node))
    start = next((it.end for it in path if it.lock_count or it in seen), 0)
    seen.update(path)
    return start


def path_key(node: Node) -> bytes:
    """The whole key from the root to the end of a node."""
    return b"".join([it.key for it in path_up(node)][::-1])


def most_active(roots: Iterable[Node], count: int) -> list[Node]:
    """At most `count` nodes, parents before children: those in use first, then those found again
    most often, then those used last. Looks at the children of what it gives, and no further."""
    first = heapq.nlargest(count, roots, key=_activity)
    pending = [(*_activity(root, -1), root) for root in first]  # ids differ: no node is compared
    heapq.heapify(pending)
    found: list[Node] = []
    while pending and len(found) < count:
        found.append(node := heapq.heappop(pending)[-1])
        for child in heapq.nlargest(count - len(found), node.children.values(), key=_activity):
            heapq.heappush(pending, (*_activity(child, -1), child))
    return found


def _activity(node: Node, sign: int = 1) -> tuple[int, int, int, int]:
    in_use = int(node.lock_count > 0)
    return sign * in_use, sign * node.hits, sign * node.last_used, sign * node.id


def view(node: Node, shown: Collection[int] | None, max_tokens: int | None) -> NodeView:
    """A node as it is now. shown: ids of the children to list; None: all."""
    key = node.key if max_tokens is None else node.key[: max_tokens * WIDTH]
    ids = [child.id for child in node.children.values()]
    listed = ids if shown is None else [id for id in ids if id in shown]
    return NodeView(
        id=node.id,
        parent=-1 if node.parent is None else node.parent.id,
        namespace=node.namespace,
        tokens=tuple(np.frombuffer(key, np.int32).tolist()),
        end=node.end,
        lock_count=node.lock_count,
        hits=node.hits,
        last_used=node.last_used,
        children=tuple(listed),
        num_hidden=len(ids) - len(listed),
    )


def check_edge(node: Node) -> None:
    assert node.parent is not None
    size, above = node.size, node.parent
    assert size > 0, f"the edge of node {node.id} is empty"
    assert len(node.key) == size * WIDTH, f"node {node.id} has a broken key"
    assert node.is_in_pool or node.host is not None, f"node {node.id} is stored nowhere"
    assert len(node.slots) in (0, size), f"node {node.id} has not one slot a token"
    assert node.host is None or len(node.host) == size, f"node {node.id} is on the host in part"
    assert node.is_in_pool or not node.lock_count, f"node {node.id} is locked and not in the pool"
    assert above.is_in_pool or above.parent is None or not node.is_in_pool, (
        f"gap above node {node.id}"
    )
    assert node.end == above.end + size, f"the end of node {node.id} is wrong"
    assert node.parent.children[node.key[:WIDTH]] is node, f"node {node.id} is not its parent's"
