"""Properties of the slots for runs: bounds hold, none waits beside a free slot, tenants in turn."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.adapters.http.programs.slots import RunSlots

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(("take", "take", "give", "cancel", "give_and_cancel")), st.integers()
    ),
    max_size=40,
)


class Runs:
    """Runs of tenants, of which some have slots and some wait."""

    def __init__(self, most: int) -> None:
        self.slots = RunSlots(most)
        self.waiting: list[tuple[str, asyncio.Task[None]]] = []
        self.at_work: list[str] = []

    async def do(self, action: str, number: int) -> None:
        match action:
            case "take":
                tenant = "abc"[number % 3]
                self.waiting.append((tenant, asyncio.ensure_future(self.slots.take(tenant))))
            case "give" if self.at_work:
                self.slots.give(self.at_work.pop(number % len(self.at_work)))
            case "cancel" if self.waiting:
                self.waiting[number % len(self.waiting)][1].cancel()
            case "give_and_cancel" if self.at_work and self.waiting:
                # among them the one that has just been given the slot
                self.slots.give(self.at_work.pop(number % len(self.at_work)))
                for _, task in self.waiting[number % 2 :]:
                    task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        ended = [(tenant, task) for tenant, task in self.waiting if task.done()]
        self.at_work += [tenant for tenant, task in ended if not task.cancelled()]
        self.waiting = [pair for pair in self.waiting if not pair[1].done()]
        self.check()

    def check(self) -> None:
        self.slots.check()
        assert sorted(self.slots.at_work.elements()) == sorted(self.at_work)
        assert self.slots.num_waiting == len(self.waiting)


@given(st.sampled_from((1, 1, 2, 3, 8)), ACTIONS)
@settings(max_examples=60, deadline=None)
def test_slots_are_conserved_whatever_comes_and_goes(
    most: int, actions: list[tuple[str, int]]
) -> None:
    async def run() -> None:
        runs = Runs(most)
        for action, number in actions:
            await runs.do(action, number)
        for _ in range(len(actions) + 1):  # at the end all that wait get one
            await runs.do("give", 0)
        assert not runs.waiting
        assert not runs.at_work

    asyncio.run(run())


def test_tenants_that_wait_get_slots_in_turn() -> None:
    async def run() -> list[str]:
        slots, found = RunSlots(2), list[str]()

        async def work(tenant: str) -> None:
            await slots.take(tenant)
            found.append(tenant)
            await asyncio.sleep(0)
            slots.give(tenant)

        await asyncio.gather(*(work(tenant) for tenant in "aaaaaabbc"))
        return found

    order = "".join(asyncio.run(run()))
    assert sorted(order) == sorted("aaaaaabbc")
    assert order.index("c") < 6
    assert order.rindex("b") < 8


def test_a_run_behind_one_that_is_about_to_leave_gets_its_slot() -> None:
    async def run() -> None:
        slots = RunSlots(1)
        await slots.take("a")
        leaving = asyncio.ensure_future(slots.take("a"))
        await asyncio.sleep(0)
        leaving.cancel()
        slots.give("a")
        await asyncio.wait_for(slots.take("a"), 5)
        slots.check()

    asyncio.run(run())
