"""Which runs are at work: a bounded number, tenants in turn. It is used in one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque

_KEPT = 8  # one part of so many of the slots is kept from any one tenant


class RunSlots:
    """Slots for runs, of which no tenant has all. Who finds none waits; when one is free, the next
    tenant that waits and may have it gets it, for its run that has waited longest.

    most: of all. at_work: slots that each tenant has.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = max(1, most - most // _KEPT)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.at_work: Counter[str] = Counter()

    @property
    def num_waiting(self) -> int:
        """Runs that wait."""
        return sum(map(len, self._waiting.values()))

    async def take(self, tenant: str) -> None:
        """Wait for a slot; `give` gives it back."""
        if self._is_free(tenant) and tenant not in self._waiting:
            self.at_work[tenant] += 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.cancelled() or not waiting.done():
                self._leave(tenant, waiting)
                self._hand_out()  # to who came behind it while it was about to leave
            else:  # it has just been given a slot
                self.give(tenant)
            raise

    def give(self, tenant: str) -> None:
        """Give a slot back that `take` gave."""
        self.at_work[tenant] -= 1
        if not self.at_work[tenant]:
            del self.at_work[tenant]
        self._hand_out()

    def _hand_out(self) -> None:
        """Give a free slot to the next that may have it."""
        for following in list(self._waiting):
            waiting = self._first(following)
            if waiting is not None and self._is_free(following):
                self.at_work[following] += 1
                waiting.set_result(None)
                self._leave(following, waiting)
                return

    def _first(self, tenant: str) -> asyncio.Future[None] | None:
        """Who of a tenant has waited longest; not one that was cancelled and is about to leave."""
        return next((it for it in self._waiting[tenant] if not it.done()), None)

    def _leave(self, tenant: str, waiting: asyncio.Future[None]) -> None:
        self._waiting[tenant].remove(waiting)
        self._waiting.move_to_end(tenant)
        if not self._waiting[tenant]:
            del self._waiting[tenant]

    def _is_free(self, tenant: str) -> bool:
        is_full = self.at_work.total() >= self._most
        return not is_full and self.at_work[tenant] < self._most_of_one

    def check(self) -> None:
        """Raise AssertionError where a bound does not hold; for tests."""
        assert self.at_work.total() <= self._most
        assert all(0 < num <= self._most_of_one for num in self.at_work.values())
        assert all(self._waiting.values())
        assert not any(map(self._is_free, self._waiting))
