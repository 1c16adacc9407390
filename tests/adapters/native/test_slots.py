"""Properties of slots: one ending counts, and each action is called once with it, in any order."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.native.interpreter.slots import Slot

STEPS = st.lists(st.sampled_from(("set", "fail", "watch", "watch_again")), max_size=12)


@given(STEPS)
def test_the_first_ending_counts_and_all_who_watch_see_it_once(steps: list[str]) -> None:
    slot, seen, num_watchers = Slot(), list[tuple[object, object]](), 0
    ending: tuple[object, object] | None = None

    def look(found: Slot) -> None:
        seen.append((found.value, found.error))

    def watch_again(found: Slot) -> None:  # an action may watch the slot itself
        found.when_done(look)

    for number, step in enumerate(steps):
        if step == "set":
            slot.set(number)
            ending = ending or (number, None)
        elif step == "fail":
            error = ValueError(number)
            slot.fail(error)
            ending = ending or (None, error)
        else:
            slot.when_done(look if step == "watch" else watch_again)
            num_watchers += 1
        assert slot.is_done == (ending is not None)
        assert seen == ([] if ending is None else [ending] * num_watchers)
    if ending is not None:
        slot.wait()


def test_threads_that_end_and_watch_a_slot_together_agree() -> None:
    for _ in range(50):
        slot, seen = Slot(), list[object]()
        start = threading.Barrier(8)

        def end(number: int, slot: Slot = slot, start: threading.Barrier = start) -> None:
            start.wait()
            slot.set(number)

        def watch(slot: Slot = slot, start: threading.Barrier = start, seen: list = seen) -> None:  # type: ignore[type-arg]
            start.wait()
            slot.when_done(lambda found: seen.append(found.value))
            slot.wait()

        threads = [threading.Thread(target=end, args=(number,)) for number in range(4)]
        threads += [threading.Thread(target=watch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [slot.value] * 4
