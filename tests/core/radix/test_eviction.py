"""Tenants share the pool: what one adds takes nothing of the share of another that uses its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.core.api.batch import Ints
from forkroot.core.radix.cache import Lease, RadixCache
from forkroot.core.radix.eviction import LAPSE, QUANTUM, EvictionOrder
from forkroot.core.radix.host import HostTier
from forkroot.core.radix.node import Node

CAPACITY = 8192
PROMPT = 128  # tokens


class Tenants:
    """A cache, and sequences of several tenants that use it."""

    def __init__(self, capacity: int = CAPACITY, host: HostTier | None = None, seed: int = 0):
        self.cache = RadixCache(capacity, host=host)
        self._random = np.random.default_rng(seed)

    def prompt(self, size: int = PROMPT) -> Ints:
        """Tokens that nobody has used."""
        return self._random.integers(0, 2**30, size).astype(np.int32)

    def start(
        self, namespace: str, tokens: Ints, owner: str | None = None, weight: float = 1.0
    ) -> Lease | None:
        """A sequence with all of its tokens computed; None where there is no room."""
        lease = self.cache.acquire(namespace, tokens, len(tokens), owner, weight)
        slots = self.cache.allocate(len(tokens) - lease.length)
        if slots is None:
            self.cache.release(lease)
            return None
        self.cache.commit(lease, tokens, np.concatenate([lease.slots, slots]))
        return lease

    def run(self, *args: object, **options: object) -> None:
        """A sequence from start to end."""
        lease = self.start(*args, **options)  # type: ignore[arg-type]
        assert lease is not None
        self.cache.release(lease)

    def flood(self, namespace: str, pools: float, **options: object) -> None:
        """So many pools of unique prompts."""
        for _ in range(int(pools * self.cache.capacity / PROMPT)):
            self.run(namespace, self.prompt(), **options)

    def hit_rate(self, namespace: str, prompts: list[Ints]) -> float:
        """Cached tokens of these prompts, of all."""
        found = sum(self.cache.match(namespace, it, len(it)).length for it in prompts)
        return found / sum(map(len, prompts))

    def cached(self) -> dict[str, int]:
        """Cached tokens by namespace."""
        found: dict[str, int] = {}
        for node in self.cache.snapshot():
            found[node.namespace] = found.get(node.namespace, 0) + len(node.tokens)
        return found


@pytest.mark.parametrize("is_offloading", [False, True])
def test_ten_pools_of_another_tenants_prompts_leave_a_quarter_of_the_pool(
    is_offloading: bool,
) -> None:
    tenants = Tenants(host=HostTier(CAPACITY) if is_offloading else None)
    prompts = [tenants.prompt() for _ in range(CAPACITY // 4 // PROMPT)]
    for prompt in prompts:
        tenants.run("modest", prompt)
    tenants.flood("greedy", 10)
    tenants.cache.check(0)
    assert tenants.hit_rate("modest", prompts) >= 0.95
    assert tenants.cached()["greedy"] >= CAPACITY // 2


def test_a_tenant_with_many_namespaces_has_one_share() -> None:
    tenants = Tenants()
    prompts = [tenants.prompt() for _ in range(CAPACITY // 4 // PROMPT)]
    for prompt in prompts:
        tenants.run("modest", prompt, owner="modest")
    for number in range(1000):
        tenants.run(f"greedy/{number}", tenants.prompt(), owner="greedy")
    assert tenants.hit_rate("modest", prompts) >= 0.95


def test_tenants_that_flood_share_the_pool_by_weight() -> None:
    tenants = Tenants()
    for _ in range(30):
        tenants.flood("light", 0.1, weight=1.0)
        tenants.flood("heavy", 0.1, weight=3.0)
    found = tenants.cached()
    assert found["heavy"] == pytest.approx(3 * found["light"], rel=0.25)


def test_a_tenant_alone_may_fill_the_pool_and_gives_it_up_to_others() -> None:
    tenants = Tenants()
    tenants.flood("first", 2)
    assert tenants.cached()["first"] == CAPACITY
    tenants.flood("second", 2)
    assert tenants.cached()["second"] == pytest.approx(CAPACITY / 2, abs=2 * QUANTUM)


def test_what_an_idle_tenant_caches_goes_first() -> None:
    tenants = Tenants()
    tenants.flood("idle", 0.25)
    tenants.flood("busy", LAPSE + 3)
    assert tenants.cached() == {"busy": CAPACITY}


def test_a_tenant_that_uses_its_prompts_is_not_idle() -> None:
    tenants = Tenants()
    prompts = [tenants.prompt() for _ in range(8)]
    for _ in range(2 * LAPSE):
        for prompt in prompts:
            tenants.run("modest", prompt)
        tenants.flood("busy", 1)
    assert tenants.hit_rate("modest", prompts) == 1.0


def test_a_tenant_is_found_while_outdated_entries_are_dropped() -> None:
    order = EvictionOrder(1000)
    for namespace in ("stays", "leaves"):
        order.enter(namespace, namespace)
        order.use(namespace)
    node = Node(1, "stays", Node(0, "stays"))
    order.add(node)
    for _ in range(40):
        order.count("stays", 2)
    order.leave("leaves")
    order.count("stays", -1)
    assert order.next() is node


def test_a_large_allocation_takes_no_more_of_a_tenant_than_down_to_the_others() -> None:
    tenants = Tenants()
    tenants.run("small", tenants.prompt(CAPACITY // 4))
    tenants.run("large", tenants.prompt(CAPACITY * 3 // 4))
    assert tenants.cache.allocate(CAPACITY // 2 + 1024) is not None
    found = tenants.cached()
    assert abs(found["small"] - found["large"]) <= QUANTUM


_EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 60), st.booleans(), st.booleans()), max_size=60
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    events=_EVENTS,
    capacity=st.integers(512, 4096),
    weights=st.lists(st.sampled_from((1.0, 2.0)), min_size=4, max_size=4),
)
def test_no_tenant_below_its_share_loses_tokens_and_no_slot_or_lock_is_lost(
    events: list[tuple[int, int, bool, bool]], capacity: int, weights: list[float]
) -> None:
    tenants = Tenants(capacity)
    running: list[tuple[Lease, Ints]] = []
    known = [tenants.prompt(50) for _ in range(4)]
    for number, size, is_new, stays in events:
        name = str(number)
        before = tenants.cached()
        prompt = tenants.prompt(size * 5) if is_new else known[number][:size]
        lease = tenants.start(name, prompt, weight=weights[number])
        if lease is not None:
            running.append((lease, prompt))
        _check_losses(before, tenants.cached(), [it.namespace for it, _ in running], weights)
        while running and not stays:
            tenants.cache.release(running.pop()[0])
        tenants.cache.check(0)
        for held, tokens in running:
            assert tenants.hit_rate(held.namespace, [tokens]) == 1.0
    assert tenants.cache.num_locked == len({slot for it, _ in running for slot in it.slots})


def _check_losses(
    before: dict[str, int], after: dict[str, int], locked: list[str], weights: list[float]
) -> None:
    """One that lost tokens keeps as many by weight as each that holds no lock, but for a step."""
    for name in before:
        if after.get(name, 0) < before[name]:
            usage = after.get(name, 0) / weights[int(name)]
            others = [it for it in after if it not in locked and it != name]
            for other in others:
                assert usage + QUANTUM >= after[other] / weights[int(other)]


def test_a_renewed_text_goes_after_what_was_used_later() -> None:
    tenants = Tenants(4 * PROMPT)
    prompts = [tenants.prompt() for _ in range(4)]
    leases = [tenants.start("", it) for it in prompts]
    for lease in leases:
        assert lease is not None
        tenants.cache.release(lease)
    assert leases[0] is not None
    tenants.cache.renew(leases[0])
    tenants.cache.check(0)
    tenants.flood("", 0.5)
    kept = [tenants.cache.match("", it, PROMPT).length for it in prompts]
    assert kept == [PROMPT, 0, 0, PROMPT]


@pytest.mark.parametrize("host_slots", [0, 4 * PROMPT])
def test_what_is_gone_is_renewed_as_far_as_it_is_there(host_slots: int) -> None:
    host = HostTier.of(host_slots, "back") if host_slots else None
    tenants = Tenants(4 * PROMPT, host)
    beginning, rest = tenants.prompt(), tenants.prompt()
    text = np.concatenate([beginning, rest])
    tenants.run("", beginning)
    lease = tenants.start("", text)
    assert lease is not None
    tenants.cache.release(lease)
    tenants.run("", beginning)
    for _ in range(5):
        tenants.flood("", 0.25)
        tenants.cache.renew(lease)
        tenants.cache.check(0)
    assert tenants.cache.match("", text, len(text)).length >= PROMPT
    tenants.cache.clear()
    tenants.cache.renew(lease)
    tenants.cache.check(0)


def test_what_a_tenant_caches_within_its_share_is_out_of_reach_for_others() -> None:
    tenants = Tenants()
    tenants.flood("greedy", 1)
    assert tenants.cache.num_available_to("new") == CAPACITY - CAPACITY // 2
    assert tenants.cache.num_available_to("greedy") == CAPACITY
    tenants.flood("modest", 0.25, weight=3.0)
    assert tenants.cache.num_available_to("modest") == 3 * CAPACITY // 4
    assert tenants.cache.num_available_to("greedy") == CAPACITY - CAPACITY // 4
    lease = tenants.start("modest", tenants.prompt(), weight=3.0)
    assert lease is not None
    assert tenants.cache.num_available == CAPACITY - PROMPT
    assert tenants.cache.num_available_to("modest") == 3 * CAPACITY // 4 - PROMPT
    tenants.cache.release(lease)


def test_what_an_idle_tenant_caches_is_in_reach() -> None:
    tenants = Tenants()
    tenants.run("idle", tenants.prompt(CAPACITY // 4))
    tenants.flood("busy", 0.25)
    assert tenants.cache.num_available_to("busy") == 3 * CAPACITY // 4
    tenants.flood("busy", LAPSE + 2)
    assert tenants.cache.num_available_to("busy") == CAPACITY
