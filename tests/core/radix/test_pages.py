"""The slot pool: who gets which slots, and what a wrong release does."""

from __future__ import annotations

import numpy as np
import pytest

from forkroot.core.api.batch import Ints
from forkroot.core.radix.pages import SlotPool


def _taken(pool: SlotPool, count: int) -> Ints:
    slots = pool.allocate(count)
    assert slots is not None
    return slots


def test_a_fresh_pool_hands_out_ascending_neighbours() -> None:
    pool = SlotPool(8)
    assert _taken(pool, 3).tolist() == [0, 1, 2]
    assert _taken(pool, 4).tolist() == [3, 4, 5, 6]
    assert pool.num_free == 1


def test_too_many_slots_are_refused_and_nothing_changes() -> None:
    pool = SlotPool(4)
    assert pool.allocate(5) is None
    assert pool.num_free == 4
    assert _taken(pool, 4).tolist() == [0, 1, 2, 3]
    assert pool.allocate(1) is None
    assert _taken(pool, 0).tolist() == []


def test_slots_released_together_come_back_together_in_their_order() -> None:
    pool = SlotPool(100)
    run, other = _taken(pool, 10), _taken(pool, 5)
    pool.release(run)
    pool.release(other)
    assert _taken(pool, 5).tolist() == other.tolist()
    assert _taken(pool, 10).tolist() == run.tolist()


def test_a_scattered_pool_becomes_one_run_again() -> None:
    pool = SlotPool(64)
    slots = np.random.default_rng(0).permutation(_taken(pool, 64))
    for part in np.split(slots, 16):
        pool.release(part)
    assert _taken(pool, 64).tolist() == list(range(64))


def test_handed_out_slots_do_not_change_when_the_pool_does() -> None:
    pool = SlotPool(6)
    first = _taken(pool, 3)
    pool.release(_taken(pool, 3))
    assert first.tolist() == [0, 1, 2]


def test_a_slot_released_twice_is_refused_and_the_pool_stays_sound() -> None:
    pool = SlotPool(6)
    slots = _taken(pool, 4)
    pool.release(slots[:2])
    with pytest.raises(ValueError, match=r"slots=\[1\] are free already"):
        pool.release(slots[1:])
    pool.check()
    assert pool.num_free == 4


def test_a_slot_named_twice_in_one_release_is_found_by_check() -> None:
    pool = SlotPool(6)
    slots = _taken(pool, 4)
    pool.release(slots[[0, 1, 1]])
    with pytest.raises(AssertionError, match="5 slots listed as free, 4 marked"):
        pool.check()


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_pool_without_slots_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"invalid capacity={capacity}"):
        SlotPool(capacity)
