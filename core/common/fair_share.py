"""Fair shares between tenants, by weight.

A tenant's counter is what it got, divided by its weight; the lowest counter is next ("Fairness in
Serving Large Language Models", Sheng et al., 2024; the difference of two counters is the deficit of
deficit round robin). A tenant that had nothing to do starts at the lowest counter of the others:
time without work gives no credit. Knows nothing of what is shared.
"""

from __future__ import annotations

from collections.abc import Mapping

QUANTUM = 16  # tokens that a tenant gets at a time


class FairShare:
    """Counters of what tenants got."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._weights: Mapping[str, float] = {}
        self._floor = 0.0

    def update(self, weights: Mapping[str, float]) -> None:
        """Set who competes now, and their weights. Debts of others are kept until they are paid."""
        stay = [self._used[name] for name in weights if name in self._weights]
        self._floor = max(self._floor, min(stay, default=self._floor))
        kept = {name: used for name, used in self._used.items() if used > self._floor}
        self._used = kept | {name: max(kept.get(name, 0.0), self._floor) for name in weights}
        self._weights = dict(weights)

    def charge(self, name: str, amount: float) -> None:
        """Count what a tenant that competes got."""
        self._used[name] += amount / self._weights[name]

    def used(self, name: str) -> float:
        """The counter of a tenant that competes."""
        return self._used[name]

    def divide(self, budget: int, wanted: Mapping[str, int]) -> dict[str, int]:
        """How much of a budget each of these competitors gets, at most what it wants; all of the
        budget where they want as much. It is charged."""
        left = {name: count for name, count in wanted.items() if count > 0}
        given = dict.fromkeys(wanted, 0)
        while budget > 0 and left:
            name = min(left, key=self.used)
            count = min(QUANTUM, left[name], budget)
            self.charge(name, count)
            given[name] += count
            left[name] -= count
            budget -= count
            if not left[name]:
                del left[name]
        return given
