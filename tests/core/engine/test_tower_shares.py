"""The tower computes a tenant's pictures as a part of that tenant's share of time."""

from __future__ import annotations

from typing import Any

import pytest

from forkroot.benchmarks.common.fake_media import FakeProcessor, picture
from forkroot.benchmarks.common.fake_runner import FakeRunner, LateRunner
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import Call, Sampling, Text
from forkroot.core.engine.pictures.tower_shares import TowerShares

STEP, TOWER_TOKEN = 0.002, 0.0005
SIZES = {"num_slots": 20_000, "context_len": 1000, "max_running": 64, "tower_tokens": 400}


class Timed(FakeRunner):
    """A step takes 2 ms, and half a millisecond more for each token of the tower."""

    def __init__(self) -> None:
        super().__init__(SIZES["num_slots"])
        self.world: Any = None
        self.costs: list[int] = []

    def run(self, batch: Batch) -> Outcome:
        units = [(it.pixels.layout.unit_costs, it.units) for it in batch.encodes]
        self.costs.append(sum(costs[unit] for costs, span in units for unit in span))
        self.world.now += STEP + TOWER_TOKEN * self.costs[-1]
        return super().run(batch)


def shown(index: int, tenant: str = "pictures", **sampling: Any) -> Call:
    """A call about a picture of 10 units of 40 tokens, each 20 ms."""
    options = Sampling(max_tokens=2, temperature=0.0, **sampling)
    return Call((picture(10, 20, index), Text("?")), options, tenant=tenant)


@pytest.fixture
def timed(bench: Any) -> Any:
    """Makes a world whose steps take time."""

    def make(overlap: bool = False) -> Any:
        timed = Timed()
        runner = LateRunner(timed) if overlap else timed
        world = bench(runner, processor=FakeProcessor(), **SIZES, overlap=overlap)
        timed.world, world.timed = world, timed
        return world

    return make


@pytest.mark.parametrize("overlap", [False, True])
def test_a_stream_beside_pictures_of_another_takes_about_twice_as_long_not_a_hundred_times(
    timed: Any, call: Any, overlap: bool
) -> None:
    world = timed(overlap)
    stream = world.submit(call("a", max_tokens=300, ignore_eos=True, tenant="text"))
    for _ in range(20):
        world.step()
    first, started = len(world.timed.costs), world.now
    replies = [world.submit(shown(index)) for index in range(20)]
    while not stream.done():
        world.step()
    during, seconds = world.timed.costs[first:], world.now - started
    assert max(during[3:]) == 40  # one unit in a step, once the seconds of one are known
    assert seconds <= 3 * STEP * len(during)
    assert sum(during) * TOWER_TOKEN > 0.3 * seconds  # pictures have their share
    while not all(reply.done() for reply in replies):
        world.step()
    assert max(world.timed.costs[-20:]) > 40  # once alone, as much as fits


def test_a_tenant_alone_is_not_limited_and_two_with_pictures_alone_have_turns(timed: Any) -> None:
    world = timed()
    replies = [world.submit(shown(index)) for index in range(5)]
    while not all(reply.done() for reply in replies):
        world.step()
    assert max(world.timed.costs) == 400
    replies = [world.submit(shown(9 + index, f"tenant {index % 2}")) for index in range(6)]
    first = len(world.timed.costs)
    while not all(reply.done() for reply in replies):
        world.step()
    assert max(world.timed.costs[first:]) >= 200


def test_a_unit_comes_once_its_seconds_are_saved() -> None:
    shares = TowerShares()
    shares.note(100, 1.0)  # 10 ms a token
    here, budgets = {"a", "b"}, list[int]()
    for _ in range(9):
        shares.begin(here)
        budgets.append(shares.budget("a", 30, share=0.1, used=0.0))
        assert shares.budget("a", 30, share=0.1, used=0.0) == budgets[-1]
    assert budgets == [0, 0, 30] * 3
    shares.begin(here)
    assert shares.budget("b", 30, share=1.0, used=0.2) == 80
    shares.begin(here)
    assert shares.budget("b", 30, share=1.0, used=1.0) == 50  # half of a share is the tower's
