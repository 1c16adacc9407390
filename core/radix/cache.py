"""RadixAttention's cache (paper, section 3): which tokens already have keys and values, and where.

Cached tokens and running sequences share one pool of slots without a fixed split. Who owns a slot:

    free             the pool                          allocate ->
    running          the sequence that computes it     commit -> | free -> the pool
    cached, locked   the tree; leases hold the path    release of the last lease ->
    cached           the tree, until it is evicted     acquire -> locked | evict -> the pool

It knows nothing of models, text or scheduling, and is used by one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from ..api.batch import Ints
from ..api.evictions import EvictionReport, PrefixReport
from ..api.protocol import NodeView
from .host import HostTier
from .logprobs import Logprobs
from .node import NO_SLOTS, Node, Reuse, idle_from, path_up
from .pages import SlotPool
from .tree import Tree


@dataclass(frozen=True, slots=True)
class Match:
    """How many tokens are cached, and the id of the node at whose end they end: -1 inside an edge,
    or where there is none."""

    length: int
    node: int


@dataclass(slots=True)
class Counters:
    """Totals since the start, in tokens except for acquires and splits.

    requested, matched: tokens given to `acquire`, and found in the cache.
    inserted, duplicated: tokens committed that the tree did not hold, and that it did.
    """

    acquires: int = 0
    requested: int = 0
    matched: int = 0
    inserted: int = 0
    duplicated: int = 0
    evicted: int = 0
    splits: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Lease:
    """A locked path of the tree: its tokens stay cached until it is released.

    namespace: whose tokens.
    slots: [length] where the path's keys and values are; read-only.
    """

    namespace: str
    slots: Ints
    _end: Node | None
    is_released: bool = False

    @property
    def length(self) -> int:
        """Tokens covered."""
        return len(self.slots)

    @property
    def node(self) -> int:
        """Id of the deepest node of the path; -1 in a cache that is not enabled."""
        return -1 if self._end is None else self._end.id


class RadixCache:
    """Slots of one pool, and the tree that remembers what is in them.

    capacity: slots in all.
    is_enabled: False remembers nothing (for ablations): leases stay empty and `commit` leaves the
      slots with the caller, who frees them.
    host: stores evicted tokens; it lists the copies to and from it.
    logprob_bytes: host memory that log-probabilities of cached tokens may take; 0: none are kept.
    """

    def __init__(
        self,
        capacity: int,
        is_enabled: bool = True,
        host: HostTier | None = None,
        logprob_bytes: int = 0,
    ) -> None:
        self.capacity = capacity
        self.is_enabled = is_enabled
        self.host = host
        self._pool = SlotPool(capacity)
        self._tree = Tree(capacity, host, logprob_bytes)
        self._counters = Counters()

    @property
    def num_free(self) -> int:
        """Slots that hold nothing."""
        return self._pool.num_free

    @property
    def num_cached(self) -> int:
        """Slots of cached tokens, locked or not."""
        return self._tree.num_cached

    @property
    def num_locked(self) -> int:
        """Slots of cached tokens that a lease holds."""
        return self._tree.num_cached - self._tree.num_evictable

    @property
    def num_evicted(self) -> int:
        """Tokens that were cached and are not any more, since the start."""
        return self._counters.evicted

    @property
    def keeps_logprobs(self) -> bool:
        """Whether log-probabilities are kept at all."""
        return self.is_enabled and self._tree.logprob_store.capacity > 0

    @property
    def num_logprob_bytes(self) -> int:
        """Memory that log-probabilities of cached tokens take."""
        return self._tree.logprob_store.num_bytes

    def load(self) -> dict[str, int]:
        """Slots in all and of each kind, nodes, and bytes of log-probabilities, by name. Any thread
        may call this."""
        return {
            "slots": self.capacity,
            "free_slots": self.num_free,
            "cached_slots": self.num_cached,
            "locked_slots": self.num_locked,
            "nodes": self.num_nodes,
            "logprob_bytes": self.num_logprob_bytes,
        }

    @property
    def num_nodes(self) -> int:
        """Nodes of the tree, roots not counted."""
        return self._tree.num_nodes

    @property
    def num_available(self) -> int:
        """The most that `allocate` can give now: free slots and those of evictable tokens."""
        return self._pool.num_free + self._tree.num_evictable

    def num_available_to(self, namespace: str) -> int:
        """The same, without what tenants cache within their share, for a namespace of another."""
        return self.num_available - self._tree.order.num_out_of_reach(namespace)

    @property
    def counters(self) -> Counters:
        """Totals since the start."""
        return replace(self._counters, splits=self._tree.num_splits)

    def match(self, namespace: str, tokens: Ints, limit: int) -> Match:
        """How much of tokens[:limit] is cached, in the pool or on the host. Changes nothing, not
        even what is evicted next."""
        found = self._tree.find(namespace, _key(tokens, limit))
        if found is None:
            return Match(0, -1)
        return Match(found.length, found.node.id if found.edge is None else -1)

    def acquire(
        self,
        namespace: str,
        tokens: Ints,
        limit: int,
        owner: str | None = None,
        weight: float | None = None,
    ) -> Lease:
        """Lock the longest cached prefix of tokens[:limit]; it counts as used until its release.
        Offloaded tokens of it are loaded into the pool, if there is room.

        owner: the tenant whose share of the pool this namespace takes; None: one of its own.
          Fixed as long as the namespace caches anything.
        weight: the owner's share from now on, relative to those of others; None: as before.
        """
        if not self.is_enabled:
            return Lease(namespace, _read_only([]), None)
        key = _key(tokens, limit)
        end = self._tree.lock_prefix(namespace, key, owner, weight)
        offloaded = self._tree.offloaded(end)
        if offloaded and not self._load_from_host(offloaded):
            end = self._relock_above(end, offloaded[0])
        self._counters.acquires += 1
        self._counters.requested += min(limit, len(tokens))
        self._counters.matched += end.end
        return Lease(namespace, _read_only(self._tree.path_slots(end)), end)

    def fetch(self, namespace: str, tokens: Ints, limit: int) -> int:
        """Load offloaded tokens of tokens[:limit] into free slots of the pool, with no eviction.
        Does not count as a request. Returns how many tokens were loaded."""
        if self.host is None:
            return 0
        end = self._tree.lock_prefix(namespace, _key(tokens, limit))
        offloaded = self._tree.offloaded(end)
        count = sum(node.size for node in offloaded)
        if not offloaded or count > self._pool.num_free or not self._load_from_host(offloaded):
            count, end = 0, self._relock_above(end, offloaded[0]) if offloaded else end
        self._tree.unlock(end)
        return count

    def commit(self, lease: Lease, tokens: Ints, slots: Ints) -> Ints:
        """Cache computed tokens and let `lease` (mutated) cover them all.

        tokens, slots: [n], n >= lease.length; the first lease.length of both are the lease's own.
        The tree takes over slots[lease.length:]. Tokens that it holds already, because another
        sequence committed them meanwhile, keep the tree's slots, and the caller's duplicates become
        free. Returns the n slots that are valid now (read-only).
        """
        end = _end_node(lease)
        if end is None:
            return slots
        assert len(tokens) == len(slots) >= lease.length, "one slot for each token of the lease"
        start = end.end
        assert not start or slots[start - 1] == lease.slots[-1], "not the slots of this lease"
        lowest, num_cached_before = self._tree.extend(end, _key(tokens, len(tokens)), slots)
        if num_cached_before > start:
            self._pool.release(slots[start:num_cached_before])
            lease.slots = _read_only([lease.slots, *self._tree.path_slots(lowest, end)])
        else:
            lease.slots = slots.copy()
            lease.slots.flags.writeable = False
        lease._end = lowest
        self._counters.duplicated += num_cached_before - start
        self._counters.inserted += len(slots) - num_cached_before
        return lease.slots

    def count_logprobs(self, namespace: str, tokens: Ints, start: int, num_top: int) -> int:
        """Of how many tokens from position `start` on, without a gap, the log-probability is kept,
        with num_top alternatives each. Changes nothing, not even what is forgotten next."""
        known = self._tree.known_logprobs(namespace, _key(tokens, len(tokens)), start, num_top)
        return sum(it.end - it.start for it in known)

    def read_logprobs(self, namespace: str, tokens: Ints, start: int, num_top: int) -> Logprobs:
        """The log-probabilities that `count_logprobs` counts, which count as used now."""
        known = self._tree.known_logprobs(namespace, _key(tokens, len(tokens)), start, num_top)
        return self._tree.read_logprobs(known, num_top)

    def keep_logprobs(self, lease: Lease, start: int, found: Logprobs) -> None:
        """Keep log-probabilities of the lease's tokens from position `start` on beside them, until
        they are evicted, or others need the memory."""
        end = _end_node(lease)
        assert start + len(found) <= lease.length, "log-probabilities of tokens not in the lease"
        if end is not None:
            self._tree.logprob_store.write(end, start, found)

    def count_sole(self, lease: Lease) -> int:
        """Tokens of a lease that no other lease locks."""
        end = _end_node(lease)
        path = () if end is None else path_up(end)
        return sum(it.size for it in takewhile(lambda it: it.lock_count == 1, path))

    def count_idle(self, lease: Lease, seen: set[Node]) -> int:
        """Slots that a released lease's tokens take when they are used again, evicted by then or
        not; without those that are locked, and those of nodes in `seen`, which gets these."""
        return max(0, lease.length - idle_from(lease._end, seen))

    def share(self, lease: Lease) -> Lease:
        """A second lease on the same path, to be released on its own."""
        if (end := _end_node(lease)) is not None:
            self._tree.lock(end)
        return Lease(lease.namespace, lease.slots, end)

    def release(self, lease: Lease) -> None:
        """Unlock the path, which stays cached until it is evicted. Once for each lease: raises
        RuntimeError the second time."""
        end = _end_node(lease)
        lease.is_released = True
        if end is not None:
            self._tree.unlock(end)

    def release_last(self, lease: Lease) -> None:
        """As `release`, of tokens that nobody is expected to use again: as far as no other lease
        had them, they are evicted first."""
        self.release(lease)
        if lease._end is not None:
            self._tree.expedite(lease._end)

    def release_first(self, lease: Lease) -> None:
        """As `release`, of tokens used again, but last of all: those of no other path go first."""
        self.release(lease)
        if lease._end is not None:
            self._tree.postpone(lease._end)

    def renew(self, lease: Lease) -> None:
        """Let a released lease's tokens be evicted as if they were used now."""
        if lease._end is not None:
            self._tree.renew(lease._end)

    def count_reused(self, lease: Lease, start: int) -> Reuse:
        """Of the tokens from position `start` on that a lease had: those that were used again since
        it was acquired. For a lease that is released; its tokens may be evicted."""
        path = () if lease._end is None else path_up(lease._end)
        own = list(takewhile(lambda it: it.end > start, path))
        reused = sum(it.size for it in own if it.hits)
        return Reuse(sum(it.size for it in own), reused)

    def allocate(self, count: int) -> Ints | None:
        """`count` slots for tokens to compute, now the caller's until `commit` or `free`. Evicts as
        needed the least recently used leaves of the tenant that caches most by its weight, see
        `eviction`; None, and nothing evicted, when that is not enough."""
        if count > self.num_available:
            return None
        if count > self._pool.num_free:
            self._release_evicted(self._tree.evict(count - self._pool.num_free))
        return self._pool.allocate(count)

    def free(self, slots: Ints) -> None:
        """Give back slots that were allocated and never committed."""
        self._pool.release(slots)

    def clear(self, namespace: str | None = None) -> int:
        """Evict all that is not locked, of one namespace or of all; returns how many tokens."""
        gone = self._tree.forget(namespace)
        self._release_evicted(gone)
        return len(gone)

    def snapshot(
        self, max_nodes: int | None = None, max_tokens: int | None = None
    ) -> tuple[NodeView, ...]:
        """Every node of the tree, roots included, parents before children: for pictures.

        max_nodes: the most active only: those in use, then those with most hits. Takes time for
          these and their children, not for the whole tree. max_tokens: of each edge.
        """
        return self._tree.snapshot(max_nodes, max_tokens)

    def evictions(self, after: int) -> EvictionReport:
        """What was forgotten since a report that ended with this number. Any thread may ask."""
        return self._tree.log.since(after)

    def prefixes(self, count: int) -> PrefixReport:
        """What is cached: the `count` paths that were used last. Takes time for the whole tree."""
        return self._tree.prefixes(count)

    def check(self, num_running: int) -> None:
        """Assert that free + cached + running slots are the whole pool, that no slot is both cached
        and free or cached twice, and every invariant of tree and pool.

        num_running: slots that callers hold: allocated, neither committed nor freed.
        """
        self._pool.check()
        self._tree.check()
        total = self.num_free + self.num_cached + num_running
        parts = f"free {self.num_free} + cached {self.num_cached} + running {num_running}"
        assert total == self.capacity, f"{parts} are {total} slots of {self.capacity}"
        owned = np.concatenate([self._pool.free_slots(), self._tree.all_slots()])
        assert np.bincount(owned, minlength=1).max() <= 1, "a slot has two owners"

    def _load_from_host(self, offloaded: list[Node]) -> bool:
        """Load locked nodes from the host; False, and nothing loaded, where there is no room."""
        assert self.host is not None
        slots = self.allocate(sum(node.size for node in offloaded))
        if slots is None:
            return False
        first = offloaded[0].end - offloaded[0].size
        for node in offloaded:
            own = slots[node.end - node.size - first : node.end - first]
            self._tree.assign_slots(node, own.copy())
            self.host.load(node)
        return True

    def _relock_above(self, end: Node, first: Node) -> Node:
        """Lock the path above `first` instead of that to `end`."""
        above = first.parent
        assert above is not None
        self._tree.lock(above)
        self._tree.unlock(end)
        return above

    def _release_evicted(self, slots: Ints) -> None:
        self._pool.release(slots)
        self._counters.evicted += len(slots)


def _key(tokens: Ints, limit: int) -> bytes:
    return np.asarray(tokens[:limit], np.int32).tobytes()


def _end_node(lease: Lease) -> Node | None:
    if lease.is_released:
        raise RuntimeError(f"the lease on node {lease.node} is released already")
    return lease._end


def _read_only(parts: list[Ints]) -> Ints:
    slots = np.concatenate([NO_SLOTS, *parts]) if parts else NO_SLOTS.copy()
    slots.flags.writeable = False
    return slots
