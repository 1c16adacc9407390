"""What a tenant's pictures may add to a step: the tower computes them as a part of the share of
time that the tenant has, unit by unit, once enough of it is saved.

A unit cannot be divided, so a tenant whose share is smaller waits for some steps, and others wait
for one unit. Seconds are estimated from steps, as in `StepCosts`. Knows nothing of what is waiting
or how shares are found.
"""

from __future__ import annotations

from collections.abc import Set

_NEW = 0.2  # the weight of a step in the estimate
_LEAST = 0.5  # of a share that goes to the tower, however much else its tenant computes


class TowerShares:
    """Seconds of the tower for each tenant."""

    def __init__(self) -> None:
        self._token_seconds = 0.0
        self._saved: dict[str, float] = {}
        self._budgets: dict[str, int] = {}

    def begin(self, tenants: Set[str]) -> None:
        """A step begins: the budgets of the last one are void, and what others than these
        saved."""
        self._budgets = {}
        for name in self._saved.keys() - tenants:
            del self._saved[name]

    def note(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step whose tower computed these tokens, and that took so long beside the
        rest."""
        found = max(0.0, seconds) / num_tokens
        weight = _NEW if self._token_seconds else 1.0
        self._token_seconds += weight * (found - self._token_seconds)

    def budget(self, tenant: str, unit: int, share: float, used: float) -> int:
        """Tokens that the tower may compute for a tenant in this step, and the same when asked
        again in it. unit: tokens of its next one. share, used: the tenant's seconds in a step,
        and what else of its calls takes of these."""
        if tenant not in self._budgets:
            self._budgets[tenant] = self._granted(tenant, unit, max(_LEAST * share, share - used))
        return self._budgets[tenant]

    def _granted(self, tenant: str, unit: int, share: float) -> int:
        needed = unit * self._token_seconds
        saved = self._saved.pop(tenant, 0.0) + share
        if saved >= needed:
            return max(unit, int(share / self._token_seconds) if self._token_seconds else unit)
        self._saved[tenant] = saved
        return 0
