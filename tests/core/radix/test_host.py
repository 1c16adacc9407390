"""Two tiers against memory that says what is in it: every leased slot holds its own prefix, however
often it went to the host and came back, and whatever was overwritten in between."""

from __future__ import annotations

import numpy as np
import pytest

from forkroot.core.api.batch import Ints
from forkroot.core.radix.cache import Lease, RadixCache
from forkroot.core.radix.host import HostTier

SPACES = ("", "tenant")


class Machine:
    """A cache over two memories; a slot's number is the prefix that was computed into it."""

    def __init__(self, num_slots: int, num_host: int, is_eager: bool) -> None:
        self.host = HostTier(num_host, is_eager)
        self.cache = RadixCache(num_slots, host=self.host)
        self.pool = np.zeros(num_slots, np.int64)
        self.away = np.zeros(num_host, np.int64)
        self.leases: list[tuple[Lease, Ints]] = []

    def move(self) -> None:
        """What a runner does before it computes."""
        for move in self.host.take_copies():
            if move.is_load:
                self.pool[move.slots] = self.away[move.host]
            else:
                self.away[move.host] = self.pool[move.slots]

    def run(self, namespace: str, tokens: Ints) -> int:
        """Acquire, compute what is missing, commit; the lease is kept. How much was cached."""
        lease = self.cache.acquire(namespace, tokens, len(tokens))
        cached = lease.length
        slots = self.cache.allocate(len(tokens) - cached)
        if slots is None:
            self.cache.release(lease)
            return -1
        self.move()
        self.pool[slots] = marks(namespace, tokens)[cached:]
        self.cache.commit(lease, tokens, np.concatenate((lease.slots, slots)))
        self.leases.append((lease, tokens))
        return cached

    def release(self, index: int) -> None:
        self.cache.release(self.leases.pop(index)[0])

    def check(self) -> None:
        self.cache.check(0)
        self.move()
        for lease, tokens in self.leases:
            wanted = marks(lease.namespace, tokens)[: lease.length]
            assert np.array_equal(self.pool[lease.slots], wanted)


def marks(namespace: str, tokens: Ints) -> np.ndarray:
    """One number for each prefix."""
    found, mark = [], SPACES.index(namespace) + 1
    for token in tokens.tolist():
        mark = (mark * 1_000_003 + token + 1) % (2**61 - 1)
        found.append(mark)
    return np.array(found, np.int64)


def ints(*tokens: int) -> Ints:
    return np.array(tokens, np.int32)


@pytest.mark.parametrize("is_eager", [False, True], ids=["write-back", "write-through"])
@pytest.mark.parametrize("num_host", [1, 30, 400])
def test_what_comes_back_is_what_left(is_eager, num_host) -> None:
    random = np.random.default_rng(num_host)
    machine = Machine(40, num_host, is_eager)
    for step in range(4000):
        kind = random.random()
        if kind < 0.55 and len(machine.leases) < 4:
            tokens = random.integers(0, 3, random.integers(1, 16)).astype(np.int32)
            machine.run(SPACES[random.integers(2)], tokens)
        elif machine.leases:
            machine.release(int(random.integers(len(machine.leases))))
        if kind > 0.999:
            machine.cache.clear((None, *SPACES)[random.integers(3)])
        if step % 7 == 0:
            machine.check()
    while machine.leases:
        machine.release(0)
    machine.check()
    machine.cache.clear()
    assert (machine.cache.num_free, machine.host.num_stored, machine.cache.num_nodes) == (40, 0, 0)
    if num_host > 1:
        assert machine.host.num_loaded > 0


def test_a_working_set_ten_times_the_pool_is_found_again() -> None:
    machine = Machine(64, 640, is_eager=False)
    prompts = [ints(*range(1000 * i, 1000 * i + 60)) for i in range(10)]
    for is_known in (False, True):
        for tokens in prompts:
            assert machine.run("", tokens) == (60 if is_known else 0)
            machine.release(0)
            machine.check()
    assert machine.host.num_saved == 600


def test_tokens_that_were_saved_when_cached_leave_without_a_copy() -> None:
    machine = Machine(8, 100, is_eager=True)
    machine.run("", ints(1, 2, 3, 4, 5))
    assert machine.host.num_saved == 5
    machine.release(0)
    machine.run("", ints(6, 7, 8, 9, 10))
    assert machine.host.num_saved == 10
    machine.release(0)
    assert machine.run("", ints(1, 2, 3, 4, 5)) == 5
    machine.check()


def test_offloaded_tokens_stay_offloaded_where_the_pool_has_no_room() -> None:
    machine = Machine(8, 100, is_eager=False)
    machine.run("", ints(1, 2, 3, 4, 5))
    machine.release(0)
    machine.run("", ints(6, 7, 8, 9, 10, 11))
    assert machine.cache.match("", ints(1, 2, 3, 4, 5), 5).length == 5
    lease = machine.cache.acquire("", ints(1, 2, 3, 4, 5), 5)
    assert lease.length < 5
    machine.cache.release(lease)
    machine.check()


def test_a_host_that_is_too_small_forgets_the_oldest_first() -> None:
    machine = Machine(4, 8, is_eager=False)
    for first in (10, 20, 30, 40):
        machine.run("", ints(first, first + 1, first + 2, first + 3))
        machine.release(0)
    found = [machine.cache.match("", ints(n, n + 1, n + 2, n + 3), 4).length for n in (10, 20, 30)]
    assert found == [0, 4, 4]
    machine.check()


def test_what_is_fetched_ahead_comes_back_where_slots_are_free_and_only_there() -> None:
    machine = Machine(12, 100, is_eager=False)
    machine.run("", ints(1, 2, 3, 4, 5))
    machine.release(0)
    machine.run("", ints(*range(10, 22)))
    assert machine.cache.fetch("", ints(1, 2, 3, 4, 5), 5) == 0  # all slots are taken
    machine.release(0)
    machine.cache.free(machine.cache.allocate(6))
    requested = machine.cache.counters.requested
    assert machine.cache.fetch("", ints(1, 2, 3, 4, 5, 6), 6) == 5
    assert machine.cache.fetch("", ints(1, 2, 3, 4, 5, 6), 6) == 0  # it is there
    assert machine.cache.counters.requested == requested
    num_loaded = machine.host.num_loaded
    assert machine.run("", ints(1, 2, 3, 4, 5, 6)) == 5
    assert machine.host.num_loaded == num_loaded
    machine.check()
