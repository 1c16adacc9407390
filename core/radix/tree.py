"""The radix tree of the paper's section 3: token sequences -> slots, one root for each namespace.

It knows nothing of free slots or sequences: it returns the slots that it holds or gives up.

A node is used until it is unlocked, and unlocking walks upwards. So a list of the unlocked nodes in
the order of their unlocking holds every child before its parent, and its first node is always a
leaf: the least recently used one. `eviction` keeps one such list for each tenant.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count, dropwhile, takewhile
from typing import NamedTuple

import numpy as np

from ..api.batch import Ints
from ..api.evictions import Prefix, PrefixReport
from ..api.protocol import NodeView
from ..common.digests import digests
from .eviction import EvictionOrder
from .eviction_log import EvictionLog
from .host import HostTier
from .logprob_store import LogprobStore
from .logprobs import Logprobs
from .node import (
    NO_SLOTS,
    WIDTH,
    Descent,
    Node,
    check_edge,
    descend,
    descendants,
    is_in_tree,
    most_active,
    path_key,
    path_up,
    view,
)


class Known(NamedTuple):
    """Rows start:end of a node's log-probabilities."""

    node: Node
    start: int
    end: int


class Tree:
    """Cached tokens of all namespaces.

    capacity: slots of the pool.
    host: where tokens go that have to leave the pool; None: nowhere, they are forgotten. What is
      in the pool hangs below nothing that is not.
    num_cached, num_evictable: tokens in the pool, and those of unlocked nodes.
    logprob_bytes: memory that log-probabilities of tokens may take, which are kept beside them.
    log: of the tokens that are forgotten. order: in which they are.
    num_nodes: edges, roots not counted; num_splits: edges cut in two since the start.
    """

    def __init__(self, capacity: int, host: HostTier | None = None, logprob_bytes: int = 0) -> None:
        self._host = host
        self.log = EvictionLog()
        self.logprob_store = LogprobStore(logprob_bytes)
        self.num_cached = 0
        self.num_evictable = 0
        self.num_nodes = 0
        self.num_splits = 0
        self._roots: dict[str, Node] = {}
        self.order = EvictionOrder(capacity)
        self._clock = 0
        self._ids = count()

    def find(self, namespace: str, key: bytes) -> Descent | None:
        """How far `key` is known; None in a namespace that holds nothing. Changes nothing."""
        root = self._roots.get(namespace)
        return None if root is None else descend(root, key)

    def lock_prefix(
        self, namespace: str, key: bytes, owner: str | None = None, weight: float | None = None
    ) -> Node:
        """Lock the longest known prefix of `key` and give the node at its end, which is made by a
        split where the prefix ended inside an edge. owner: the tenant whose share of the pool the
        namespace takes, as long as it caches anything; None: one of its own. weight: of that
        tenant from now on; None: as before."""
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(next(self._ids), namespace)
            self.order.enter(namespace, namespace if owner is None else owner)
        if weight is not None:
            self.order.reweigh(namespace, weight)
        node = self._node_at(descend(root, key))
        self.lock(node)
        return node

    def extend(self, node: Node, key: bytes, slots: Ints) -> tuple[Node, int]:
        """Make the whole of `key` known below the locked `node`, whose end it passes through, and
        move one lock from `node`'s path to the path of the key's end. `slots` (one for each token
        of `key`) are copied for the tokens that the tree did not hold. Returns the node at the
        key's end, and how many tokens were in the pool before."""
        descent = descend(node, key)
        lowest = self._node_at(descent)
        self.lock(lowest, node)
        offloaded = self.offloaded(lowest)
        for edge in offloaded:  # computed once more: in the pool again without a copy
            self.assign_slots(edge, slots[edge.end - edge.size : edge.end].copy())
        num_cached_before = (
            descent.length if not offloaded else offloaded[0].end - offloaded[0].size
        )
        if lowest.end * WIDTH < len(key):
            lowest = self._add_leaf(lowest, key, slots)
            if self._host is not None and self._host.is_eager:
                self._save(lowest)
        return lowest, num_cached_before

    def offloaded(self, node: Node) -> list[Node]:
        """The nodes up to the end of `node` that are not in the pool, the uppermost first."""
        if self._host is None:
            return []
        return list(takewhile(lambda it: not it.is_in_pool, path_up(node)))[::-1]

    def assign_slots(self, node: Node, slots: Ints) -> None:
        """Give a locked node slots of the pool."""
        node.slots = slots
        self._count(node, len(slots))

    def lock(self, node: Node, above: Node | None = None) -> None:
        """Lock the path from `node` up to its root, or to below `above` where that is given."""
        self._clock = now = self._clock + 1
        unlocked, num_locked = self.order.use(node.namespace), 0
        at: Node | None = node
        while at is not above and at is not None:
            if at.lock_count == 0 and at.parent is not None:
                unlocked.pop(at, None)  # a node fresh from a split is not listed
                num_locked += len(at.slots)
            at.lock_count += 1
            at.last_used = now
            at.hits += 1
            at.is_expedited = False
            at = at.parent
        self._count_evictable(node.namespace, -num_locked)

    def unlock(self, node: Node) -> None:
        """Undo one `lock(node)`; a namespace without tokens and locks is dropped."""
        self._clock = now = self._clock + 1
        self.order.use(node.namespace)
        at, num_unlocked = node, 0
        while at.parent is not None:
            at.lock_count -= 1
            at.last_used = now
            if at.lock_count == 0 and at.is_in_pool:
                self.order.add(at)
                num_unlocked += len(at.slots)
            at = at.parent
        self._count_evictable(node.namespace, num_unlocked)
        at.lock_count -= 1
        at.last_used = now
        self._drop_empty_root(at)

    def expedite(self, node: Node) -> None:
        """Let the end of a path that is unlocked go first: all of it that was locked but once."""
        path = takewhile(lambda it: not it.hits and not it.lock_count, path_up(node))
        own = [it for it in path if it.is_in_pool]
        if not any(child.is_in_pool for child in node.children.values()):
            self.order.expedite(own[::-1])

    def postpone(self, node: Node) -> None:
        """Let the end of a path that is unlocked go first: all of it below the last fork."""
        path = takewhile(lambda it: not it.lock_count and len(it.children) < 2, path_up(node))
        own = [it for it in path if it.is_in_pool]
        if not any(child.is_in_pool for child in node.children.values()):
            self.order.expedite(own[::-1])

    def renew(self, node: Node) -> None:
        """Let a path that was locked be evicted as if it were used now, as far as it is in the
        pool. Counts as no use."""
        path = list(dropwhile(lambda it: not is_in_tree(it), path_up(node)))
        self._clock = now = self._clock + 1
        for it in path:
            it.last_used = now
        self.order.renew(path)

    def known_logprobs(self, namespace: str, key: bytes, start: int, num_top: int) -> list[Known]:
        """Where log-probabilities are, with num_top alternatives each, of the tokens of `key` from
        position `start` on, as far as they are known without a gap. Changes nothing."""
        found = self.find(namespace, key)
        if found is None or not self.logprob_store.num_bytes:
            return []
        path = list(takewhile(lambda it: it.end > start, path_up(found.edge or found.node)))
        known = []
        for node in reversed(path):
            first = node.end - node.size
            low, high = start - first, min(node.end, found.length) - first
            count = 0 if node.logprobs is None else node.logprobs.num_known(low, high, num_top)
            if count:
                known.append(Known(node, low, low + count))
                start += count
            if low + count < node.size:
                break
        return known

    def read_logprobs(self, known: list[Known], num_top: int) -> Logprobs:
        """Copies of these, now the most recently used."""
        self.logprob_store.use(node for node, _, _ in reversed(known))
        parts = [node.logprobs[low:high] for node, low, high in known if node.logprobs is not None]
        return Logprobs.join(parts, num_top)

    def path_slots(self, node: Node, above: Node | None = None) -> list[Ints]:
        """Slots of the edges from the root (or from the end of `above`) to the end of `node`."""
        return [it.slots for it in path_up(node, above)][::-1]

    def evict(self, count: int) -> Ints:
        """Give up unlocked leaves in the order of `eviction` until `count` tokens are gone (or
        nothing is left to evict), and return their slots. The last leaf only loses its tail: as
        much as is needed, and a 64th of it at least, so that shortening a long leaf bit by bit
        stays cheap."""
        evicted = [NO_SLOTS]
        while count > 0 and (leaf := self.order.next()) is not None:
            wanted = min(count, self.order.step or count)
            surplus = leaf.size - max(wanted, leaf.size // 64)
            evicted.append(self._shorten(leaf, surplus) if surplus > 0 else self._evict_leaf(leaf))
            self.order.note_evicted(len(evicted[-1]))
            count -= len(evicted[-1])
        return np.concatenate(evicted)

    def forget(self, namespace: str | None = None) -> Ints:
        """Give up all that is not locked in one namespace, or in all, on the host too; returns the
        slots of the pool that it had."""
        names = list(self._roots) if namespace is None else [namespace]
        evicted = [NO_SLOTS]
        for root in (self._roots[name] for name in names if name in self._roots):
            nodes = reversed(list(descendants(root)))
            evicted += [self._remove(node) for node in nodes if node.lock_count == 0]
        return np.concatenate(evicted)

    def snapshot(
        self, max_nodes: int | None = None, max_tokens: int | None = None
    ) -> tuple[NodeView, ...]:
        """Every node, parents before children; or the `max_nodes` most active of them, and at most
        so many tokens of each edge."""
        if max_nodes is None:
            return tuple(view(node, None, max_tokens) for node in self._all_nodes())
        found = most_active(self._roots.values(), max_nodes)
        shown = {node.id for node in found}
        return tuple(view(node, shown, max_tokens) for node in found)

    def prefixes(self, count: int) -> PrefixReport:
        """The paths to the `count` leaves that were used last, newest first."""
        leaves = (it for it in self._all_nodes() if not it.children and it.parent is not None)
        newest = heapq.nlargest(count, leaves, key=lambda node: (node.last_used, node.id))
        found = (Prefix(node.namespace, digests(path_key(node))) for node in newest)
        self.log.is_read = True
        return PrefixReport(self.log.life, self.log.end, tuple(it for it in found if it.digests))

    def check(self) -> None:
        """Assert every invariant of the tree."""
        everything = list(self._all_nodes())
        nodes = [node for node in everything if node.parent is not None]
        for node in nodes:
            check_edge(node)
        for above in everything:
            locks = sum(child.lock_count for child in above.children.values())
            assert above.lock_count >= locks, f"node {above.id} has fewer locks than its children"
            assert above.children or above.parent or above.lock_count, f"root {above.id} is bare"
        self.order.check(nodes)
        evictable = sum(len(node.slots) for node in nodes if node.lock_count == 0)
        assert self.num_evictable == evictable, "num_evictable is wrong"
        self.logprob_store.check(nodes)
        if self._host is not None:
            self._host.check(nodes)
        assert self.num_cached == sum(len(node.slots) for node in nodes), "num_cached is wrong"
        assert self.num_nodes == len(nodes), "num_nodes is wrong"

    def all_slots(self) -> Ints:
        """Slots of all cached tokens, in no promised order."""
        return np.concatenate([NO_SLOTS, *(node.slots for node in self._all_nodes())])

    def _all_nodes(self) -> Iterator[Node]:
        """Every node, roots included, parents before children."""
        return (it for root in self._roots.values() for it in (root, *descendants(root)))

    def _add_leaf(self, parent: Node, key: bytes, slots: Ints) -> Node:
        edge = key[parent.end * WIDTH :]
        rest = slots[parent.end :].copy()
        leaf = Node(next(self._ids), parent.namespace, parent, edge, rest, len(slots))
        leaf.lock_count = 1
        leaf.last_used = self._clock
        parent.children[edge[:WIDTH]] = leaf
        self._count(leaf, len(leaf.slots))
        self.num_nodes += 1
        return leaf

    def _node_at(self, descent: Descent) -> Node:
        """The node at the end of a descent. One that is new here is not yet in the eviction order:
        the caller locks it."""
        if descent.edge is None:
            return descent.node
        return self._split(descent.edge, descent.inside)

    def _split(self, lower: Node, offset: int) -> Node:
        """Split an edge `offset` bytes below its upper end. The lower half stays the same node, as
        leases refer to its end; the new upper half has the same locks."""
        above, size = lower.parent, offset // WIDTH
        assert above is not None
        slots = lower.slots[:size].copy()
        key, end = lower.key[:offset], above.end + size
        upper = Node(next(self._ids), above.namespace, above, key, slots, end)
        upper.lock_count = lower.lock_count
        upper.hits = lower.hits
        upper.last_used = lower.last_used
        upper.is_expedited = lower.is_expedited
        above.children[upper.key[:WIDTH]] = upper
        lower.parent, lower.key, lower.slots = upper, lower.key[offset:], lower.slots[size:].copy()
        upper.children[lower.key[:WIDTH]] = lower
        self.logprob_store.split(upper, lower)
        if self._host is not None:
            self._host.split(upper, lower)
        self.num_nodes += 1
        self.num_splits += 1
        return upper

    def _shorten(self, leaf: Node, size: int) -> Ints:
        """Let all but the first `size` tokens of an unlocked leaf go."""
        if self._host is not None:
            upper = self._split(leaf, size * WIDTH)
            self.order.add_first(upper)
            self.order.add_first(leaf)
            return self._evict_leaf(leaf)
        gone = leaf.slots[size:]
        self._log(leaf, leaf.end - len(gone))
        leaf.slots, leaf.key = leaf.slots[:size].copy(), leaf.key[: size * WIDTH]
        leaf.end -= len(gone)
        self.logprob_store.shorten(leaf)
        self._count(leaf, -len(gone))
        self._count_evictable(leaf.namespace, -len(gone))
        return gone

    def _evict_leaf(self, leaf: Node) -> Ints:
        """Take an unlocked leaf of the pool out of it: to the host, or out of the tree with all
        that hangs below it."""
        if self._host is not None and self._save(leaf):
            return self._free_pool_slots(leaf)
        for node in reversed(list(descendants(leaf))):
            self._remove(node)
        return self._remove(leaf)

    def _save(self, node: Node) -> bool:
        assert self._host is not None
        for gone in self._host.room_for(node):
            self._remove(gone)
        return self._host.save(node)

    def _free_pool_slots(self, leaf: Node) -> Ints:
        """Take a leaf's slots of the pool."""
        slots, leaf.slots = leaf.slots, NO_SLOTS
        if len(slots):
            self.order.discard(leaf)
            self._count(leaf, -len(slots))
            self._count_evictable(leaf.namespace, -len(slots))
        return slots

    def _remove(self, leaf: Node) -> Ints:
        above = leaf.parent
        assert above is not None and not leaf.children and leaf.lock_count == 0
        slots = self._free_pool_slots(leaf)
        self._log(leaf, above.end)
        self.logprob_store.drop(leaf)
        if self._host is not None:
            self._host.drop(leaf)
        del above.children[leaf.key[:WIDTH]]
        self.num_nodes -= 1
        self._drop_empty_root(above)
        return slots

    def _log(self, node: Node, kept: int) -> None:
        """Of the path to a node only the first `kept` tokens are cached from now on."""
        if self.log.is_read:
            self.log.add(node.namespace, path_key(node), kept * WIDTH, node.end - kept)

    def _drop_empty_root(self, node: Node) -> None:
        if node.parent is None and not node.children and node.lock_count == 0:
            del self._roots[node.namespace]
            self.order.leave(node.namespace)

    def _count_evictable(self, namespace: str, num_tokens: int) -> None:
        """So many tokens more of a namespace can be evicted; negative: less."""
        if num_tokens:
            self.num_evictable += num_tokens
            self.order.count_unlocked(namespace, num_tokens)

    def _count(self, node: Node, num_tokens: int) -> None:
        """So many tokens of a node came into the pool; negative: left it."""
        self.num_cached += num_tokens
        self.order.count(node.namespace, num_tokens)
