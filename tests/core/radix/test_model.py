"""The cache against a plain model of it: one dict entry for each cached token, LRU by a linear
scan, as both namespaces are of one tenant. Every operation predicts lengths, slots, evictions,
locks and log-probabilities, and `check` runs after each."""

from __future__ import annotations

import zlib
from dataclasses import astuple, dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forkroot.core.api.batch import Ints
from forkroot.core.radix.cache import Lease, RadixCache
from forkroot.core.radix.logprobs import Logprobs

NAMESPACES = ("", "tenant")


@dataclass(slots=True)
class Cached:
    """What the model knows of one cached token. num_top: alternatives kept with its
    log-probability; -1: that is not kept."""

    slot: int
    used: int
    locks: int = 0
    num_top: int = -1


@dataclass(slots=True, eq=False)
class Running:
    """A sequence: its lease, its computed tokens, and a slot for each."""

    lease: Lease
    tokens: list[int]
    slots: list[int] = field(default_factory=list)

    @property
    def num_own(self) -> int:
        return len(self.slots) - self.lease.length


class World:
    """A cache and its model, driven together. logprob_bytes: None for more than is ever needed;
    else log-probabilities may be forgotten at any time."""

    def __init__(self, capacity: int, logprob_bytes: int | None = None) -> None:
        self.is_exact = logprob_bytes is None
        self.cache = RadixCache(
            capacity, logprob_bytes=1 << 30 if logprob_bytes is None else logprob_bytes
        )
        self.cached: dict[tuple[str, tuple[int, ...]], Cached] = {}
        self.running: list[Running] = []
        self.spare: list[Ints] = []
        self.time = 0

    def acquire(self, namespace: str, tokens: list[int], limit: int) -> None:
        known = self._known(namespace, tokens[:limit])
        assert self.cache.match(namespace, _ints(tokens), limit).length == known
        lease = self.cache.acquire(namespace, _ints(tokens), limit, owner="both")
        assert lease.length == known
        running = Running(lease, tokens[:known], lease.slots.tolist())
        assert running.slots == [entry.slot for entry in self._path(running)]
        self._lock(running, 0, 1)
        self.running.append(running)

    def compute(self, running: Running, tokens: list[int]) -> None:
        slots = self._allocate(len(tokens))
        if slots is not None:
            running.tokens += tokens
            running.slots += slots.tolist()

    def commit(self, running: Running, count: int) -> None:
        lease, old = running.lease, running.lease.length
        count = max(count, old)
        for end in range(old + 1, count + 1):
            key = lease.namespace, tuple(running.tokens[:end])
            self.cached.setdefault(key, Cached(running.slots[end - 1], 0))
        valid = self.cache.commit(
            lease, _ints(running.tokens[:count]), _ints(running.slots[:count])
        )
        assert lease.length == count
        assert valid.tolist() == lease.slots.tolist()
        running.slots[:count] = valid.tolist()
        assert running.slots[:count] == [entry.slot for entry in self._path(running)]
        self._lock(running, old, 1)

    def keep(self, running: Running, start: int, count: int, num_top: int) -> None:
        lease = running.lease
        ends = range(start + 1, min(start + count, lease.length) + 1)
        rows = [row_of(lease.namespace, running.tokens[:end], num_top) for end in ends]
        found = Logprobs.of([value for value, _ in rows], [top for _, top in rows], num_top)
        self.cache.keep_logprobs(lease, start, found)
        for end, (value, _) in zip(ends, rows, strict=True):
            entry = self.cached[lease.namespace, tuple(running.tokens[:end])]
            entry.num_top = max(entry.num_top, -1 if np.isnan(value) else num_top)

    def read(self, namespace: str, tokens: list[int], start: int, num_top: int) -> None:
        ends = range(start + 1, self._known(namespace, tokens) + 1)
        entries = [self.cached[namespace, tuple(tokens[:end])] for end in ends]
        known = [entry.num_top >= num_top for entry in entries]
        count = known.index(False) if False in known else len(known)
        counted = self.cache.count_logprobs(namespace, _ints(tokens), start, num_top)
        assert counted == count if self.is_exact else counted <= count
        found = self.cache.read_logprobs(namespace, _ints(tokens), start, num_top)
        rows = [row_of(namespace, tokens[:end], num_top) for end in ends[:counted]]
        assert found.values.tolist() == [value for value, _ in rows]
        assert found.pairs(num_top) == [top for _, top in rows]

    def share(self, running: Running) -> None:
        lease = self.cache.share(running.lease)
        shared = Running(lease, running.tokens[: lease.length], lease.slots.tolist())
        self._lock(shared, 0, 1)
        self.running.append(shared)

    def release(self, running: Running) -> None:
        if running.num_own:
            self.cache.free(_ints(running.slots[running.lease.length :]))
        self.cache.release(running.lease)
        self._lock(running, 0, -1)
        self.running.remove(running)

    def reserve(self, count: int) -> None:
        slots = self._allocate(count)
        if slots is not None:
            self.spare.append(slots)

    def give_back(self) -> None:
        self.cache.free(self.spare.pop())

    def clear(self, namespace: str | None) -> None:
        gone = [
            key
            for key, entry in self.cached.items()
            if not entry.locks and namespace in (None, key[0])
        ]
        assert self.cache.clear(namespace) == len(gone)
        for key in gone:
            del self.cached[key]

    def check(self) -> None:
        """Conservation, every invariant of the cache, and agreement with the model."""
        num_running = sum(r.num_own for r in self.running) + sum(map(len, self.spare))
        self.cache.check(num_running)
        assert self.cache.num_cached == len(self.cached)
        assert self.cache.num_locked == sum(entry.locks > 0 for entry in self.cached.values())

    def check_tree(self) -> None:
        """Every cached token is where the model has it, with as many locks."""
        above: dict[int, tuple[int, ...]] = {}
        seen = {}
        for node in self.cache.snapshot():
            prefix = above.get(node.parent, ())
            above[node.id] = prefix + node.tokens
            for end in range(len(prefix) + 1, node.end + 1):
                seen[node.namespace, above[node.id][:end]] = node.lock_count
        assert seen == {key: entry.locks for key, entry in self.cached.items()}

    def end(self) -> None:
        """Give everything back: nothing may be left."""
        for running in list(self.running):
            self.release(running)
        while self.spare:
            self.give_back()
        self.check()
        assert self.cache.num_locked == 0
        self.clear(None)
        assert self.cache.num_free == self.cache.capacity
        assert self.cache.snapshot() == ()

    def _allocate(self, count: int) -> Ints | None:
        free = self.cache.num_free
        evictable = sum(not entry.locks for entry in self.cached.values())
        assert self.cache.num_available == free + evictable
        slots = self.cache.allocate(count)
        assert (slots is None) == (count > free + evictable)
        if slots is not None:
            for _ in range(count - free):
                self._evict_one()
        return slots

    def _evict_one(self) -> None:
        inner = {(namespace, tokens[:-1]) for namespace, tokens in self.cached}
        leaves = [k for k, entry in self.cached.items() if not entry.locks and k not in inner]
        del self.cached[min(leaves, key=lambda key: self.cached[key].used)]

    def _known(self, namespace: str, tokens: list[int]) -> int:
        length = 0
        while length < len(tokens) and (namespace, tuple(tokens[: length + 1])) in self.cached:
            length += 1
        return length

    def _path(self, running: Running) -> list[Cached]:
        namespace, tokens = running.lease.namespace, tuple(running.tokens)
        ends = range(1, running.lease.length + 1)
        return [self.cached[namespace, tokens[:end]] for end in ends]

    def _lock(self, running: Running, start: int, change: int) -> None:
        self.time += 1
        for entry in self._path(running)[start:]:
            entry.locks += change
            entry.used = self.time


def row_of(
    namespace: str, prefix: list[int], num_top: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability of a prefix's last token, and its alternatives: NaN for some."""
    mark = zlib.crc32(repr((namespace, prefix)).encode())
    value = float("nan") if mark % 29 == 0 else -(mark % 1000) / 8
    return value, tuple((place, value - place) for place in range(num_top))


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int32)


def _random_step(world: World, random: np.random.Generator) -> None:
    """One operation, weighted like traffic: few, short and often equal sequences."""
    kind = random.random()
    running = world.running[random.integers(len(world.running))] if world.running else None
    if running is None or (kind < 0.3 and len(world.running) < 4):
        tokens = random.integers(0, 2, random.integers(0, 12)).tolist()
        limit = int(random.integers(0, len(tokens) + 1)) if kind < 0.1 else len(tokens)
        namespace = NAMESPACES[random.integers(2)]
        world.read(namespace, tokens, int(random.integers(0, 3)), int(random.integers(0, 3)))
        world.acquire(namespace, tokens, limit)
    elif kind < 0.5:
        world.compute(running, random.integers(0, 2, random.integers(0, 9)).tolist())
    elif kind < 0.7:
        world.commit(running, int(random.integers(0, len(running.tokens) + 1)))
    elif kind < 0.75 and running.lease.length:
        start = int(random.integers(0, running.lease.length))
        world.keep(running, start, int(random.integers(1, 12)), int(random.integers(0, 3)))
    elif kind < 0.77 and len(world.running) < 4:
        world.share(running)
    elif kind < 0.79 and len(world.spare) < 2:
        world.reserve(int(random.integers(0, 10)))
    elif kind < 0.83 and world.spare:
        world.give_back()
    elif kind < 0.833:
        world.clear((None, *NAMESPACES)[random.integers(3)])
    else:
        world.release(running)


@pytest.mark.parametrize("logprob_bytes", [0, 700, 3000])
def test_a_small_budget_forgets_log_probabilities_and_reports_no_wrong_one(
    logprob_bytes: int,
) -> None:
    world, random = World(64, logprob_bytes), np.random.default_rng(logprob_bytes)
    most = 0
    for _ in range(5000):
        _random_step(world, random)
        world.check()
        most = max(most, world.cache.num_logprob_bytes)
    assert most <= logprob_bytes
    assert (most > 0) == (logprob_bytes > 0)
    world.end()
    assert world.cache.num_logprob_bytes == 0


@pytest.mark.parametrize("capacity", [24, 64, 128, 256])
def test_slots_are_conserved_after_every_step_of_10_000_random_operations(capacity: int) -> None:
    world, random = World(capacity), np.random.default_rng(capacity)
    for step in range(10_000):
        _random_step(world, random)
        world.check()
        if step % 50 == 0:
            world.check_tree()
    totals = world.cache.counters
    assert min(astuple(totals)) > 100, "every kind of thing must have happened"
    world.end()


class Machine(RuleBasedStateMachine):
    """Any order of operations that hypothesis finds interesting."""

    tokens = st.lists(st.integers(0, 2), max_size=12)

    @initialize(capacity=st.integers(1, 64))
    def start(self, capacity: int) -> None:
        self.world = World(capacity)
        self.ended: list[Lease] = []

    @rule(namespace=st.sampled_from(NAMESPACES), tokens=tokens, limit=st.integers(0, 14))
    def acquire(self, namespace: str, tokens: list[int], limit: int) -> None:
        self.world.acquire(namespace, tokens, limit)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), tokens=tokens)
    def compute(self, data: st.DataObject, tokens: list[int]) -> None:
        self.world.compute(self._pick(data), tokens)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        running = self._pick(data)
        self.world.commit(running, data.draw(st.integers(0, len(running.tokens)), "count"))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), count=st.integers(1, 12), num_top=st.integers(0, 3))
    def keep(self, data: st.DataObject, count: int, num_top: int) -> None:
        running = self._pick(data)
        start = data.draw(st.integers(0, running.lease.length), "start")
        self.world.keep(running, start, count, num_top)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        tokens=tokens,
        start=st.integers(0, 12),
        num_top=st.integers(0, 3),
    )
    def read(self, namespace: str, tokens: list[int], start: int, num_top: int) -> None:
        self.world.read(namespace, tokens, start, num_top)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        self.world.share(self._pick(data))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.world.release(self._pick(data))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        running = self._pick(data)
        self.ended.append(running.lease)
        self.world.release(running)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        self.world.cache.renew(data.draw(st.sampled_from(self.ended), "lease"))

    @rule(count=st.integers(0, 65))
    def reserve(self, count: int) -> None:
        self.world.reserve(count)

    @precondition(lambda self: self.world.spare)
    @rule()
    def give_back(self) -> None:
        self.world.give_back()

    @rule(namespace=st.sampled_from((None, *NAMESPACES)))
    def clear(self, namespace: str | None) -> None:
        self.world.clear(namespace)

    @invariant()
    def is_conserved(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            self.world.check_tree()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()

    def _pick(self, data: st.DataObject) -> Running:
        index = data.draw(st.integers(0, len(self.world.running) - 1), "running")
        return self.world.running[index]


TestAnyOrder = Machine.TestCase
TestAnyOrder.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
