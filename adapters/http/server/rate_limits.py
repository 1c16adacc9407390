"""Rate limits by key: requests and tokens in a minute, with credit for a minute at most.

Tokens are counted when a call ends, as its usage has them; what a call may still generate is held
until then. A key that owes is refused until it has paid: so no single request is too large.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .errors import Fault, Refused


@dataclass(frozen=True, slots=True)
class Rates:
    """What a key may use in a minute; None: any number."""

    requests: int | None = None
    tokens: int | None = None


class RateLimits:
    """What each tenant has left. by_tenant: of those that have other rates. clock: seconds,
    monotonic."""

    def __init__(
        self,
        rates: Rates,
        clock: Callable[[], float] = time.monotonic,
        by_tenant: Mapping[str, Rates] | None = None,
    ) -> None:
        others = by_tenant or {}
        requests = {tenant: it.requests for tenant, it in others.items()}
        tokens = {tenant: it.tokens for tenant, it in others.items()}
        self._requests = _Credits(rates.requests, requests, clock)
        self._tokens = _Credits(rates.tokens, tokens, clock)

    def admit(self, tenant: str) -> None:
        """Count a request. Raises Refused (429, with the seconds after which to try again)."""
        waits = self._requests.seconds_until(tenant, 1), self._tokens.seconds_until(tenant, 0)
        seconds = max(waits)
        if seconds > 0:
            fault = Fault(
                *(429, "rate_limit_error", "rate_limit_exceeded"), retry_after=math.ceil(seconds)
            )
            raise Refused("this key has used what it may use in a minute", fault)
        self._requests.take(tenant, 1)

    def take_tokens(self, tenant: str, count: int) -> None:
        """Count tokens of a tenant; a negative number gives them back."""
        self._tokens.take(tenant, count)


class _Credits:
    """Credits by tenant that come back steadily: `per_minute` in all, or those of `by_tenant`.
    None: no limit."""

    def __init__(
        self,
        per_minute: int | None,
        by_tenant: Mapping[str, int | None],
        clock: Callable[[], float],
    ) -> None:
        self._per_minute = per_minute
        self._by_tenant = by_tenant
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # at which second

    def take(self, tenant: str, count: int) -> None:
        rate = self._by_tenant.get(tenant, self._per_minute)
        if rate is not None:
            with self._lock:
                self._left[tenant] = self._now(tenant, rate) - count, self._clock()

    def seconds_until(self, tenant: str, needed: int) -> float:
        """Seconds until more than 0 are there, and as many as are needed."""
        rate = self._by_tenant.get(tenant, self._per_minute)
        if rate is None:
            return 0.0
        missing = max(needed, 1e-9) - self._now(tenant, rate)
        return max(0.0, missing * 60 / rate)

    def _now(self, tenant: str, rate: int) -> float:
        left, at = self._left.get(tenant, (float(rate), 0.0))
        return min(rate, left + (self._clock() - at) * rate / 60)
