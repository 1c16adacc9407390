"""Requests of several tenants begin in turn; one that is alone waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from forkroot.adapters.http.server.turns import Turns


class Clocked(asyncio.SelectorEventLoop):
    """A loop whose clock moves only when a request works, or when nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def idle(self) -> None:
        """Come to the next timer, where all waits for one."""
        timers = [it.when() for it in self._scheduled if not it.cancelled()]  # type: ignore[attr-defined]
        if timers and not self._ready:  # type: ignore[attr-defined]
            self.now = max(self.now, min(timers))


def run(scenario: Callable[[Clocked, Turns], Awaitable[None]]) -> None:
    """Run it on such a loop."""
    loop = Clocked()

    async def tick() -> None:
        while True:
            await asyncio.sleep(0)
            loop.idle()

    async def both() -> None:
        ticking = asyncio.create_task(tick())
        try:
            await scenario(loop, Turns())
        finally:
            ticking.cancel()

    try:
        loop.run_until_complete(both())
    finally:
        loop.close()


async def ask(
    loop: Clocked, turns: Turns, tenant: str, begun: list[tuple[str, float]], size: int = 0
) -> None:
    """A request that works for a millisecond once it may begin."""
    await turns.take(tenant, size)
    begun.append((tenant, loop.now))
    loop.now += 0.001


def tasks(
    loop: Clocked,
    turns: Turns,
    tenant: str,
    begun: list[tuple[str, float]],
    count: int,
    size: int = 0,
) -> list[asyncio.Task[None]]:
    return [asyncio.ensure_future(ask(loop, turns, tenant, begun, size)) for _ in range(count)]


def test_a_tenant_that_is_alone_never_waits() -> None:
    async def scenario(loop: Clocked, turns: Turns) -> None:
        begun: list[tuple[str, float]] = []
        made = tasks(loop, turns, "one", begun, 50)
        await asyncio.sleep(0)  # each has had one round
        assert len(begun) == 50
        await asyncio.gather(*made)

    run(scenario)


def test_a_tenant_that_sends_one_request_comes_before_the_second_of_many() -> None:
    async def scenario(loop: Clocked, turns: Turns) -> None:
        begun: list[tuple[str, float]] = []
        await ask(loop, turns, "modest", begun)
        await asyncio.sleep(0.1)
        made = tasks(loop, turns, "greedy", begun, 100) + tasks(loop, turns, "modest", begun, 1)
        await asyncio.gather(*made)
        assert [name for name, _ in begun].index("modest", 1) <= 2
        assert len(begun) == 102

    run(scenario)


def test_a_tenant_pauses_as_long_as_its_request_took() -> None:
    async def scenario(loop: Clocked, turns: Turns) -> None:
        begun: list[tuple[str, float]] = []
        await ask(loop, turns, "modest", begun)
        await asyncio.sleep(0.01)
        await asyncio.gather(*tasks(loop, turns, "greedy", begun, 5))
        times = [time for name, time in begun if name == "greedy"]
        assert [after - before for before, after in pairwise(times)] == (pytest.approx([0.002] * 4))

    run(scenario)


def test_a_pause_after_a_large_body_is_longer_and_bounded() -> None:
    async def scenario(loop: Clocked, turns: Turns) -> None:
        begun: list[tuple[str, float]] = []
        await ask(loop, turns, "modest", begun)
        await asyncio.gather(*tasks(loop, turns, "greedy", begun, 2, 100_000))
        await asyncio.gather(*tasks(loop, turns, "greedy", begun, 2, 10**9))
        times = [time for name, time in begun if name == "greedy"]
        assert times[1] - times[0] == pytest.approx(0.011)
        assert times[3] - times[2] == pytest.approx(0.251)

    run(scenario)


def test_one_request_that_comes_in_a_pause_waits_for_its_end_only() -> None:
    async def scenario(loop: Clocked, turns: Turns) -> None:
        begun: list[tuple[str, float]] = []
        await ask(loop, turns, "other", begun)
        await ask(loop, turns, "one", begun)
        await asyncio.sleep(0)
        await asyncio.wait_for(ask(loop, turns, "one", begun), 0.1)
        assert begun[2][1] == pytest.approx(0.003)

    run(scenario)


def test_a_request_that_is_cancelled_holds_nobody() -> None:
    async def scenario(loop: Clocked, turns: Turns) -> None:
        begun: list[tuple[str, float]] = []
        await ask(loop, turns, "other", begun)
        made = tasks(loop, turns, "one", begun, 3)
        await asyncio.sleep(0)
        made[1].cancel()
        await asyncio.gather(*made, return_exceptions=True)
        assert len(begun) == 3

    run(scenario)


def test_after_a_while_without_another_a_tenant_is_alone_again() -> None:
    async def scenario(loop: Clocked, turns: Turns) -> None:
        begun: list[tuple[str, float]] = []
        await ask(loop, turns, "other", begun)
        await ask(loop, turns, "one", begun)
        await asyncio.sleep(1.5)
        made = tasks(loop, turns, "one", begun, 20)
        await asyncio.sleep(0)
        assert len(begun) == 22
        await asyncio.gather(*made)

    run(scenario)
