"""Which cached tokens leave the pool next.

Tenants share the pool by weight: the least recently used leaf goes of the one that caches most by
its weight, so that one which caches less than its share loses nothing to what another adds. A
tenant has its share as long as it uses what it caches: one that did not while the pool was
replaced `LAPSE` times is idle, and what idle tenants cache goes first. With one tenant the
order is that of last use.

Knows nothing of edges or free slots: the tree lists here the nodes that it does not lock.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from .node import Node

LAPSE = 16  # pools of evicted tokens after which a tenant that used nothing is idle
QUANTUM = 256  # tokens that a tenant loses at a time, where there are several


@dataclass(slots=True, eq=False)
class Tenant:
    """What one tenant caches.

    num_roots, num_cached: its namespaces, and its tokens in the pool, locked or not.
    num_unlocked: those of `unlocked`.
    unlocked: those of its nodes that may go, least recently used first; a node comes after its
      children, so the first one is a leaf.
    used_at: how many tokens had been evicted, of all tenants, when it last used some of its own.
    listed: its usage as the newest entry of the heap has it; None: it has no entry.
    """

    name: str
    weight: float = 1.0
    num_roots: int = 0
    num_cached: int = 0
    num_unlocked: int = 0
    unlocked: OrderedDict[Node, None] = field(default_factory=OrderedDict)
    used_at: int = 0
    listed: float | None = None

    @property
    def usage(self) -> float:
        """Its tokens in the pool, by weight."""
        return self.num_cached / self.weight


class EvictionOrder:
    """The unlocked nodes of a pool in the order in which they go. capacity: slots of the pool.

    Finding the next node takes O(log n) for n tenants, all else O(1); changes are amortized: each
    adds one entry to the heap at most, and outdated entries are dropped once they are the most.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity, self._lapse = capacity, LAPSE * capacity
        self._num_evicted = 0
        self._tenants: dict[str, Tenant] = {}
        self._owners: dict[str, Tenant] = {}  # by namespace
        self._active: OrderedDict[Tenant, None] = OrderedDict()  # least recently used first
        self._idle: OrderedDict[Tenant, None] = OrderedDict()
        self._largest: list[tuple[float, int, Tenant]] = []  # a heap: what caches most comes first
        self._entries = count()

    @property
    def step(self) -> int | None:
        """How many tokens go before `next` is asked again; None: as many as are needed."""
        return QUANTUM if len(self._tenants) > 1 else None

    def enter(self, namespace: str, owner: str) -> None:
        """A tenant begins to cache in a namespace, which is not listed yet."""
        tenant = self._tenants.setdefault(owner, Tenant(owner))
        tenant.num_roots += 1
        self._owners[namespace] = tenant

    def reweigh(self, namespace: str, weight: float) -> None:
        """The weight of a namespace's owner is this one now."""
        tenant = self._owners[namespace]
        if tenant.weight != weight:
            tenant.weight = weight
            self._list(tenant)

    def leave(self, namespace: str) -> None:
        """A namespace caches nothing any more."""
        tenant = self._owners.pop(namespace)
        tenant.num_roots -= 1
        if not tenant.num_roots:
            del self._tenants[tenant.name]
            self._active.pop(tenant, None)
            self._idle.pop(tenant, None)

    def use(self, namespace: str) -> OrderedDict[Node, None]:
        """The unlocked nodes of a namespace's owner, which uses what it caches now."""
        tenant = self._owners[namespace]
        tenant.used_at = self._num_evicted
        if tenant in self._active:
            self._active.move_to_end(tenant)
        else:
            self._active[tenant] = None
            self._idle.pop(tenant, None)
            self._list(tenant)
        return tenant.unlocked

    def add(self, node: Node) -> None:
        """A node is unlocked now, and its children are: it goes last of its tenant's."""
        tenant = self._owners[node.namespace]
        tenant.unlocked[node] = None
        self._list(tenant)

    def add_first(self, node: Node) -> None:
        """A node with no children in the pool is unlocked: it goes first of its tenant's."""
        self.add(node)
        self._owners[node.namespace].unlocked.move_to_end(node, last=False)

    def expedite(self, nodes: list[Node]) -> None:
        """These unlocked nodes, each followed by its child, and nothing else below them, go first
        of their tenant's: they are not expected to be used again."""
        for node in nodes:
            self._owners[node.namespace].unlocked.move_to_end(node, last=False)
            node.is_expedited = True

    def renew(self, nodes: Iterable[Node]) -> None:
        """These nodes, each followed by its parent, go as if they were used now."""
        for node in nodes:
            unlocked = self._owners[node.namespace].unlocked
            if node in unlocked:
                unlocked.move_to_end(node)
            node.is_expedited = False

    def discard(self, node: Node) -> None:
        """A node is locked or gone, or was not listed."""
        self._owners[node.namespace].unlocked.pop(node, None)

    def count(self, namespace: str, num_tokens: int) -> None:
        """So many tokens of a namespace came into the pool; negative: left it."""
        tenant = self._owners[namespace]
        tenant.num_cached += num_tokens
        if num_tokens > 0:
            self._list(tenant)

    def count_unlocked(self, namespace: str, num_tokens: int) -> None:
        """So many tokens more of a namespace are those of unlocked nodes; negative: less."""
        self._owners[namespace].num_unlocked += num_tokens

    def num_out_of_reach(self, namespace: str) -> int:
        """Unlocked tokens of other tenants that do not go for what this namespace's owner adds, as
        these do not cache more than their share. Takes O(n) for n tenants."""
        own = self._owners.get(namespace)
        if len(self._tenants) < 2 and (own is not None or not self._tenants):
            return 0
        tenants = self._tenants.values()
        weights = sum(it.weight for it in tenants) + (1.0 if own is None else 0.0)
        found = 0
        for it in tenants:
            if it is own or it in self._idle:
                continue
            surplus = max(0, it.num_cached - int(self._capacity * it.weight / weights))
            found += max(0, it.num_unlocked - surplus)
        return found

    def next(self) -> Node | None:
        """The leaf that goes next; None where all are locked."""
        self._expire()
        while self._idle:
            tenant = next(iter(self._idle))
            if tenant.unlocked:
                return next(iter(tenant.unlocked))
            del self._idle[tenant]
        largest = self._first_of_heap()
        return None if largest is None else next(iter(largest.unlocked))

    def note_evicted(self, num_tokens: int) -> None:
        """So many tokens were evicted."""
        self._num_evicted += num_tokens

    def check(self, nodes: list[Node]) -> None:
        """Assert that exactly the unlocked ones of the tree's nodes are listed, children before
        their parents and in the order of their last use, and that each token is counted once."""
        nodes_of: dict[str, list[Node]] = {name: [] for name in self._tenants}
        for node in nodes:
            nodes_of[self._owners[node.namespace].name].append(node)
        for name, own in nodes_of.items():
            tenant = self._tenants[name]
            _check_order(list(tenant.unlocked), own)
            cached = sum(len(node.slots) for node in own)
            assert tenant.num_cached == cached, f"num_cached of {name!r} is wrong"
            unlocked = sum(len(node.slots) for node in tenant.unlocked)
            assert tenant.num_unlocked == unlocked, f"num_unlocked of {name!r} is wrong"
        listed = [it.name for it in (*self._active, *self._idle)]
        assert len(set(listed)) == len(listed), "a tenant is listed twice"
        assert set(listed) <= set(self._tenants), "a tenant is listed that is gone"

    def _expire(self) -> None:
        while self._active:
            tenant = next(iter(self._active))
            if self._num_evicted - tenant.used_at < self._lapse:
                return
            del self._active[tenant]
            self._idle[tenant] = None

    def _first_of_heap(self) -> Tenant | None:
        heap = self._largest
        while heap:
            negative, _, tenant = heap[0]
            if -negative != tenant.listed:
                heapq.heappop(heap)
            elif not tenant.unlocked or tenant not in self._active:
                heapq.heappop(heap)
                tenant.listed = None
            elif tenant.usage < tenant.listed:
                heapq.heappop(heap)
                tenant.listed = None
                self._list(tenant)
            else:
                return tenant
        return None

    def _list(self, tenant: Tenant) -> None:
        """See that the heap has an entry of a tenant that may lose tokens, with its usage or more;
        entries that are too large are corrected when they come first."""
        usage = tenant.usage
        if not tenant.unlocked or (tenant.listed is not None and tenant.listed >= usage):
            return
        if len(self._largest) > 2 * len(self._tenants) + 16:
            self._largest[:] = [it for it in self._largest if -it[0] == it[2].listed]
            heapq.heapify(self._largest)
        tenant.listed = usage
        heapq.heappush(self._largest, (-usage, next(self._entries), tenant))


def _check_order(listed: list[Node], nodes: list[Node]) -> None:
    expected = {node for node in nodes if node.lock_count == 0 and node.is_in_pool}
    assert set(listed) == expected, "the eviction order is not that of the unlocked nodes"
    times = [node.last_used for node in listed if not node.is_expedited]
    assert times == sorted(times), "the eviction order is not the order of last use"
    order = {node: index for index, node in enumerate(listed)}
    for node, index in order.items():
        under = [order[child] for child in node.children.values() if child.is_in_pool]
        assert max(under, default=-1) < index, f"node {node.id} goes before its child"
