"""How far the hints of tenants come true: of the branches that they announce, how many come."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ...common.recent_means import RecentMeans

NEWEST = 0.1  # weight of the newest root
PATIENCE = 3.0  # seconds after a branch in which the next one of its root is expected
MOST_ROOTS = 4096  # whose branches are awaited


@dataclass(slots=True)
class _Announced:
    """A root: whose it is, its branches, and when no more of them are awaited."""

    tenant: str
    num_branches: int
    expires: float
    num_come: int = 0


class Trust:
    """Shares of announced branches that come, by tenant: 1 where none was announced yet.

    Roots are known by namespace (or whose names these are) and name.
    """

    def __init__(self) -> None:
        self._shares = RecentMeans[str](NEWEST, start=1.0)
        self._roots: OrderedDict[tuple[str, str], _Announced] = OrderedDict()  # by expiry

    def of(self, tenant: str) -> float:
        """The share of this tenant's branches that come."""
        return self._shares[tenant]

    def announce(self, key: tuple[str, str], tenant: str, branches: int, now: float) -> None:
        """So many branches of a root are to come; nothing where that is known."""
        if branches <= 0 or key in self._roots:
            return
        self._roots[key] = _Announced(tenant, branches, now + PATIENCE)
        if len(self._roots) > MOST_ROOTS:
            self._judge_first()

    def come(self, key: tuple[str, str], now: float) -> None:
        """A branch of a root has come. Unknown roots are ignored."""
        root = self._roots.get(key)
        if root is not None:
            root.num_come += 1
            root.expires = now + PATIENCE
            self._roots.move_to_end(key)

    def expire(self, now: float) -> None:
        """Await no more branches of roots whose time is over."""
        while self._roots and next(iter(self._roots.values())).expires <= now:
            self._judge_first()

    def _judge_first(self) -> None:
        _, root = self._roots.popitem(last=False)
        self._shares.add(root.tenant, min(1.0, root.num_come / root.num_branches))
