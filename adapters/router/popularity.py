"""How much of the recent traffic begins alike.

A popular root is worth a copy on one more replica: many calls will use it there. It knows the
beginnings of prompts only, neither replicas nor what they hold.
"""

from __future__ import annotations

from collections import Counter

from ...core.common.digests import DIGEST

WINDOW = 1 << 12  # calls that are counted before all counts are halved


class Popularity:
    """Shares of recent calls by their namespaces and the first digest of their prompts. Older calls
    count less and less; memory is bounded by the window."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bytes]] = Counter()
        self._total = 0

    def count(self, namespace: str, key: bytes) -> None:
        """One more call."""
        self._counts[namespace, key[:DIGEST]] += 1
        self._total += 1
        if self._total >= WINDOW:
            self._counts = Counter({it: num // 2 for it, num in self._counts.items() if num > 1})
            self._total = self._counts.total()

    def share(self, namespace: str, key: bytes) -> float:
        """Of recent calls, those that begin like this; 0 where there was none."""
        return self._counts[namespace, key[:DIGEST]] / self._total if self._total else 0.0
