"""When a request begins whose body has come, where several tenants send some.

Reading a request and submitting its calls takes the event loop a millisecond or more. A tenant's
requests begin one after another, each after a pause as long as the one before took: others find the
loop free half of the time, however many come at once. A tenant that is alone waits for nothing.
Knows nothing of engines, whose own shares follow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

SECONDS_REMEMBERED = 1.0  # after its last request a tenant counts as here
_SECONDS_PER_BYTE = 1e-7  # of a body that threads read
_LONGEST = 0.25  # seconds of a pause
_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class _Tenant:
    """seen: when its last request came. ready_at: when its next one may begin."""

    seen: float = 0.0
    ready_at: float = 0.0
    waiting: deque[tuple[asyncio.Future[None], int]] = field(default_factory=deque)


class Turns:
    """The turns of all requests of one event loop."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}

    async def take(self, tenant: str, size: int) -> None:
        """Wait until a request of this tenant may begin. size: bytes of its body."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        known = self._tenants.setdefault(tenant, _Tenant())
        known.seen = now
        if len(self._tenants) > 1:
            self._forget(now)
        if not known.waiting and (len(self._tenants) == 1 or known.ready_at <= now):
            self._begin(loop, known, size)
            return
        waiting: asyncio.Future[None] = loop.create_future()
        known.waiting.append((waiting, size))
        if len(known.waiting) == 1 and known.ready_at < _NEVER:
            loop.call_at(known.ready_at, self._release, loop, known)
        await waiting

    def _begin(self, loop: asyncio.AbstractEventLoop, known: _Tenant, size: int) -> None:
        """A request goes on, at once or in the loop's next round; the next one may when it has
        paused."""
        known.ready_at = _NEVER
        loop.call_soon(self._pause, loop, known, loop.time(), size)

    def _pause(
        self, loop: asyncio.AbstractEventLoop, known: _Tenant, started: float, size: int
    ) -> None:
        now = loop.time()
        taken = max(now - started, size * _SECONDS_PER_BYTE)
        known.ready_at = now + min(taken, _LONGEST)
        if known.waiting:
            loop.call_at(known.ready_at, self._release, loop, known)

    def _release(self, loop: asyncio.AbstractEventLoop, known: _Tenant) -> None:
        """Let the next request go on that is still wanted."""
        while known.waiting:
            waiting, size = known.waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)  # its task comes before what `_begin` calls soon
                self._begin(loop, known, size)
                return

    def _forget(self, now: float) -> None:
        earliest = now - SECONDS_REMEMBERED
        for name in [name for name, it in self._tenants.items() if it.seen < earliest]:
            if not self._tenants[name].waiting:
                del self._tenants[name]
