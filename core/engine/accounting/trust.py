"""How far the hints of tenants come true: of the branches that they announce, how many come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from ...common.recent_means import RecentMeans

NEWEST = 0.1  # weight of the newest root
PATIENCE = 3.0  # seconds in which a root has no open call, until no more branches are awaited
MEMORY = 60.0  # seconds in which a root that was judged is not judged again
MOST_ROOTS = 1024  # of a tenant: whose branches are awaited; and which were judged
Key = tuple[Hashable, str]  # where a root's name is known, and the name


@dataclass(slots=True)
class _Root:
    """Its announced branches, those that came, its open calls, and without any, when no more of
    them are awaited."""

    num_branches: int
    num_come: int = 0
    calls: set[Hashable] = field(default_factory=set)
    expires: float = 0.0


@dataclass(slots=True)
class _Tenant:
    """Its roots with open calls; those without, by expiry; and until when those that were judged
    are not judged again. is_scheduled: it is to be looked at, in PATIENCE at the latest."""

    open: dict[Key, _Root] = field(default_factory=dict)
    awaited: OrderedDict[Key, _Root] = field(default_factory=OrderedDict)
    judged: OrderedDict[Key, float] = field(default_factory=OrderedDict)
    is_scheduled: bool = False


class Trust:
    """Shares of announced branches that come, by tenant: 1 where none was announced yet.

    A root is judged when none of its calls was open for a while: however long it and its branches
    take, and however few of them run at a time. Roots are known by namespace (or whose names these
    are) and name. No tenant's roots take the place of another's.
    """

    def __init__(self) -> None:
        self._shares = RecentMeans[str](NEWEST, start=1.0)
        self._tenants: dict[str, _Tenant] = {}
        self._schedule = list[tuple[float, str]]()  # a heap: when to look at which tenant

    def of(self, tenant: str) -> float:
        """The share of this tenant's branches that come."""
        return self._shares[tenant]

    def arrive(self, call: Hashable, key: Key, tenant: str, branches: int, is_branch: bool) -> None:
        """A call has come that names a root, and announces so many branches of it, if these are not
        announced yet. is_branch: it is one of them."""
        known = self._tenants.get(tenant)
        if known is None and branches > 0:
            known = self._tenants[tenant] = _Tenant()
        if known is None or key in known.judged:
            return
        root = known.open.get(key) or known.awaited.pop(key, None)
        if root is None and branches > 0:
            root = _Root(branches)
        if root is not None:
            root.calls.add(call)
            root.num_come += is_branch
            known.open[key] = root

    def leave(self, call: Hashable, key: Key, tenant: str, now: float) -> None:
        """A call that names a root has ended. Unknown ones are ignored."""
        known = self._tenants.get(tenant)
        root = None if known is None else known.open.get(key)
        if known is None or root is None:
            return
        root.calls.discard(call)
        if root.calls:
            return
        root.expires = now + PATIENCE
        known.awaited[key] = known.open.pop(key)
        if len(known.awaited) > MOST_ROOTS:
            self._judge_first(tenant, known, now)
        if not known.is_scheduled:
            known.is_scheduled = True
            heappush(self._schedule, (root.expires, tenant))

    def expire(self, now: float) -> None:
        """Await no more branches of roots whose time is over. Takes no time for tenants that have
        none."""
        while self._schedule and self._schedule[0][0] <= now:
            tenant = heappop(self._schedule)[1]
            known = self._tenants[tenant]
            while known.awaited and next(iter(known.awaited.values())).expires <= now:
                self._judge_first(tenant, known, now)
            while known.judged and next(iter(known.judged.values())) <= now:
                known.judged.popitem(last=False)
            firsts = [it.expires for it in islice(known.awaited.values(), 1)]
            firsts += islice(known.judged.values(), 1)
            known.is_scheduled = bool(firsts)
            if firsts:
                heappush(self._schedule, (min(now + PATIENCE, *firsts), tenant))
            elif not known.open:
                del self._tenants[tenant]

    def _judge_first(self, tenant: str, known: _Tenant, now: float) -> None:
        key, root = known.awaited.popitem(last=False)
        self._shares.add(tenant, min(1.0, root.num_come / root.num_branches))
        known.judged[key] = now + MEMORY
        if len(known.judged) > MOST_ROOTS:
            known.judged.popitem(last=False)
