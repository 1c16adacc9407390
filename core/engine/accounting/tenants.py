"""Who shares the engine: the tenants whose sequences wait or run, and how much each has got.

Knows nothing of sequences, caches or memory.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass

from ...common.fair_share import FairShare


@dataclass(slots=True)
class Tenant:
    """One that has sequences here. num_admitted: since it came."""

    weight: float = 1.0
    num_waiting: int = 0
    num_running: int = 0
    num_admitted: int = 0

    @property
    def rows(self) -> float:
        """Its running sequences, by weight."""
        return self.num_running / self.weight


class Tenants:
    """The tenants that have sequences waiting or running, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Tenant] = {}
        self._share = FairShare()
        self._is_updated = False

    def __getitem__(self, name: str) -> Tenant:
        return self._known[name]

    @property
    def are_several(self) -> bool:
        """Whether more than one is here."""
        return len(self._known) > 1

    @property
    def names(self) -> Set[str]:
        """Those that are here."""
        return self._known.keys()

    @property
    def waiting(self) -> list[str]:
        """Those that have waiting sequences."""
        return [name for name, it in self._known.items() if it.num_waiting]

    def num_waiting(self, name: str) -> int:
        """Sequences of one that wait."""
        return self._known[name].num_waiting if name in self._known else 0

    @property
    def num_running(self) -> int:
        """Sequences of all that run."""
        return sum(it.num_running for it in self._known.values())

    def weight(self, name: str) -> float:
        """The weight of one; 1 where it is not here."""
        return self._known[name].weight if name in self._known else 1.0

    def share(self, name: str) -> float:
        """What one may have of a thing that it shares with all that are here."""
        others = sum(it.weight for other, it in self._known.items() if other != name)
        return self.weight(name) / (self.weight(name) + others)

    def enter(self, name: str, weight: float) -> None:
        """A sequence waits."""
        tenant = self._known.get(name)
        if tenant is None or tenant.weight != weight:
            tenant = self._known.setdefault(name, Tenant())
            tenant.weight = weight
            self._is_updated = False
        tenant.num_waiting += 1

    def leave(self, name: str, was_running: bool) -> None:
        """A sequence has ended."""
        tenant = self._known[name]
        if was_running:
            tenant.num_running -= 1
        else:
            tenant.num_waiting -= 1
        if not tenant.num_waiting and not tenant.num_running:
            del self._known[name]
            self._is_updated = False

    def start(self, name: str, num_tokens: int) -> None:
        """A waiting sequence runs, for which so many tokens will be computed."""
        tenant = self._known[name]
        tenant.num_waiting -= 1
        tenant.num_running += 1
        tenant.num_admitted += 1
        self.charge(name, num_tokens)

    def charge(self, name: str, num_tokens: int) -> None:
        """Count tokens that are computed for a tenant."""
        self._update()
        self._share.charge(name, num_tokens)

    def next(self, names: Collection[str]) -> str:
        """Whose turn it is among these: who got least; of equals who runs least."""
        self._update()
        return min(names, key=lambda name: (self._share.used(name), self._known[name].rows))

    def _update(self) -> None:
        if not self._is_updated:
            self._share.update({name: it.weight for name, it in self._known.items()})
            self._is_updated = True
