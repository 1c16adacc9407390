"""Hinted roots are pinned until their branches are done, and a wrong hint costs only time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.core.api.protocol import Call, ForkHint, Sampling, Text
from forkroot.core.engine.accounting import trust as trusts
from forkroot.core.engine.accounting.trust import MEMORY, PATIENCE, Trust
from forkroot.core.engine.forks import Roots
from forkroot.core.radix.cache import RadixCache

SPACE = ("", "")
ROOT = "the root that all branches share. "


def branch(call, text, root="root", branches=None, prefix_end=None, **options):
    hint = ForkHint(root, branches, prefix_end)
    return call(text, hint=hint, max_tokens=2, **options)


def plant(call, text=ROOT, root="root", branches=None, **options):
    return call(text, hint=ForkHint(root, branches), **(options | {"max_tokens": 0}))


def flood(world, call):
    """Fill the pool with other calls, so that only what is locked stays cached."""
    world.run([call(f"{number}" * 100, max_tokens=1) for number in range(10)])


def is_cached(world, text, namespace=""):
    tokens = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    return world.cache.match(namespace, tokens, len(tokens)).length == len(tokens)


def test_a_prefilled_root_stays_while_others_are_evicted(bench, call):
    world = bench(num_slots=250)
    world.run([plant(call)])
    flood(world, call)
    assert is_cached(world, ROOT)


def test_without_a_hint_a_prefilled_prefix_is_evicted_as_any_other(bench, call):
    world = bench(num_slots=250)
    world.run([call(ROOT, max_tokens=0)])
    flood(world, call)
    assert not is_cached(world, ROOT)


@pytest.mark.parametrize("setting", [{"hints": False}, {"cache": False}])
def test_hints_can_be_switched_off(bench, call, setting):
    world = bench(num_slots=250, **setting)
    world.run([plant(call)])
    assert len(world.roots) == 0
    flood(world, call)
    assert not is_cached(world, ROOT)


def test_the_last_of_the_expected_branches_releases_the_root(bench, call):
    world = bench()
    world.run([plant(call, branches=3)])
    for number in range(2):
        world.run([branch(call, f"{ROOT}{number}")])
        assert world.roots.has(SPACE, "root")
    world.run([branch(call, f"{ROOT}2")])
    assert len(world.roots) == 0
    assert world.cache.num_locked == 0


def test_branches_that_end_before_their_root_is_computed_count_as_well(bench, call):
    world = bench(max_running=1)
    world.submit(plant(call, branches=2, priority=-1))
    for number in range(2):
        world.submit(branch(call, f"{ROOT}{number}"))
    world.drain()
    assert len(world.roots) == 0
    assert world.cache.num_locked == 0
    world.submit(plant(call, branches=2, priority=-1))
    world.submit(branch(call, f"{ROOT}2"))
    world.drain()
    assert world.roots.has(SPACE, "root")
    world.run([branch(call, f"{ROOT}3")])
    assert len(world.roots) == 0


@pytest.mark.parametrize("end", ["cancel", "deadline", "refuse"])
def test_a_branch_that_fails_counts_as_done(bench, call, end):
    world = bench(max_waiting=3)
    world.run([plant(call, branches=2)])
    world.run([branch(call, ROOT + "0")])
    if end == "refuse":
        for number in range(3):
            world.submit(call(f"{number}"))
    reply = world.submit(branch(call, ROOT + "1", deadline=1.0))
    if end == "cancel":
        world.cancel(reply)
    world.now = 2.0
    world.drain()
    assert len(world.roots) == 0


def test_a_root_times_out_after_its_last_use(bench, call):
    world = bench(root_timeout=5.0)
    world.run([plant(call)])
    assert world.engine.next_event() == 5.0
    world.now = 4.0
    world.run([branch(call, ROOT + "0")])
    world.now = 8.9
    world.engine.expire_roots()
    assert world.roots.has(SPACE, "root")
    assert world.engine.next_event() == 9.0
    world.now = 9.0
    world.engine.expire_roots()
    assert len(world.roots) == 0
    assert world.engine.next_event() is None
    world.engine.check()


def test_a_working_engine_lets_roots_time_out_too(bench, call):
    world = bench(root_timeout=5.0)
    world.run([plant(call)])
    world.submit(call("other", max_tokens=20))
    world.step()
    world.now = 6.0
    world.step()
    assert len(world.roots) == 0
    world.drain()


def test_clearing_the_cache_forgets_pinned_roots_and_keeps_what_open_calls_use(bench, call):
    world = bench()
    world.run([plant(call, branches=3), plant(call, "another root", root="other")])
    open_call = world.submit(branch(call, ROOT + "0"))
    world.step()
    assert world.engine.clear_cache() == len("another root")
    assert len(world.roots) == 0
    assert is_cached(world, ROOT)
    world.drain()
    expected = world.run([call(ROOT + "0", max_tokens=2)])[0].text
    assert open_call.result(0).text == expected
    assert world.engine.clear_cache() > len(ROOT)
    assert world.cache.num_cached == 0
    world.run([branch(call, ROOT + "1")])  # its root is not known any more
    world.engine.check()


def test_pinned_roots_are_released_for_a_call_that_needs_their_memory(bench, call):
    world = bench(num_slots=200)
    for name in ("r", "s", "t"):
        world.run([plant(call, name * 60, root=name)])
    (answer,) = world.run([call("x" * 150, max_tokens=2)])
    assert answer.usage.completion_tokens == 2
    assert len(world.roots) == 0


def test_a_running_sequence_takes_the_memory_of_roots_before_it_is_retracted(bench, call):
    world = bench(num_slots=100)
    world.run([plant(call, "r" * 60)])
    world.run([call("x", max_tokens=70)])
    assert world.scheduler.num_retracted == 0
    assert len(world.roots) == 0


def test_a_tenant_that_fills_the_pool_takes_no_root_of_one_that_holds_less(bench, call):
    world = bench(num_slots=150)
    world.run([plant(call, tenant="modest")])
    calls = [call(name, max_tokens=70, tenant="greedy") for name in "abc"]
    answers = world.run(calls)
    assert [it.usage.completion_tokens for it in answers] == [70, 70, 70]
    assert world.scheduler.num_retracted > 0
    assert world.roots.has(("modest", ""), "root")


def test_the_last_sequence_that_runs_takes_the_memory_of_any_root(bench, call):
    world = bench(num_slots=100)
    world.run([plant(call, tenant="modest")])
    (answer,) = world.run([call("a", max_tokens=90, tenant="greedy")])
    assert answer.usage.completion_tokens == 90
    assert world.scheduler.num_retracted == 0
    assert len(world.roots) == 0


def test_a_branch_pins_the_prefix_that_its_hint_marks(bench, call):
    world = bench(num_slots=250)
    hint = ForkHint("root", branches=2, prefix_end=1)
    prompts = [(Text(ROOT), Text(f"branch {number}")) for number in range(2)]
    calls = [Call(prompt, Sampling(max_tokens=1), hint=hint) for prompt in prompts]
    world.run(calls[:1])
    flood(world, call)
    assert is_cached(world, ROOT)
    assert not is_cached(world, ROOT + "branch 0")
    (answer,) = world.run(calls[1:])
    assert answer.usage.cached_tokens == len(ROOT)
    assert len(world.roots) == 0


def test_a_root_that_is_prefilled_again_holds_the_new_prefix_only(bench, call):
    world = bench()
    world.run([plant(call, "the old prefix", branches=5)])
    world.run([plant(call, "another prefix", branches=2)])
    assert len(world.roots) == 1
    assert world.cache.num_locked == len("another prefix")
    world.run([branch(call, "another prefix, used twice") for _ in range(2)])
    assert len(world.roots) == 0


def test_one_name_for_different_prefixes_pins_the_first(bench, call):
    world = bench()
    for text in ("one prefix", "other prefix"):
        prompt = (Text(text), Text(" and more"))
        world.run([Call(prompt, Sampling(max_tokens=1), hint=ForkHint("root", None, 1))])
    assert len(world.roots) == 1
    assert world.cache.num_locked == len("one prefix")


def test_a_cancelled_prefill_pins_nothing(bench, call):
    world = bench(chunk_tokens=8)
    reply = world.submit(plant(call))
    world.step()
    world.cancel(reply)
    assert reply.result().outputs[0].finish_reason == "abort"
    assert len(world.roots) == 0


def test_no_branches_means_no_pin(bench, call):
    world = bench()
    world.run([plant(call, branches=0)])
    assert len(world.roots) == 0


HINTS = st.none() | st.builds(
    ForkHint,
    st.sampled_from(("root", "other", "unknown")),
    st.none() | st.integers(-3, 40),
    st.none() | st.integers(-3, 9),
    st.integers(0, 99),
)


@given(st.lists(HINTS, min_size=6, max_size=6))
@settings(max_examples=40)
def test_a_wrong_hint_changes_no_answer(bench, call, hints):
    texts = [ROOT + "a", ROOT + "b", "not the root", ROOT, "", ROOT * 2]
    calls = [
        Call((Text(text[:9]), Text(text[9:]), Text("!")), Sampling(temperature=0, max_tokens=3))
        for text in texts
    ]
    expected = [answer.outputs for answer in bench().run(calls)]
    world = bench(num_slots=120)
    hinted = [
        Call(call.prompt, call.sampling, hint=hint) for call, hint in zip(calls, hints, strict=True)
    ]
    assert [answer.outputs for answer in world.run(hinted)] == expected


class TestRoots:
    """The pins by themselves."""

    @pytest.fixture
    def cache(self) -> RadixCache:
        cache = RadixCache(100)
        lease = cache.acquire("", np.arange(50, dtype=np.int32), 0)
        slots = cache.allocate(50)
        assert slots is not None
        cache.commit(lease, np.arange(50, dtype=np.int32), slots)
        cache.release(lease)
        return cache

    def lease(self, cache: RadixCache, length: int):
        return cache.acquire("", np.arange(length, dtype=np.int32), length)

    def test_unknown_roots_are_ignored(self, cache):
        roots = Roots(cache, 10.0)
        roots.finish_branch(SPACE, "root", 0.0)
        roots.unpin(SPACE, "root")
        roots.expire(100.0)
        assert not roots.release_one()
        assert roots.next_expiry() is None

    def test_the_root_that_expires_first_gives_way_first(self, cache):
        roots = Roots(cache, 10.0)
        for name, now in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
            roots.pin(SPACE, name, self.lease(cache, 10), None, now)
        roots.finish_branch(SPACE, "early", 5.0)
        assert roots.release_one()
        assert not roots.has(SPACE, "middle")
        assert roots.next_expiry() == 13.0

    def test_roots_of_the_tenant_that_pins_most_give_way_first(self, cache):
        roots = Roots(cache, 10.0)
        roots.pin(("modest", "space"), "first", self.lease(cache, 30), None, 1.0)
        for index in range(3):
            space = "greedy", f"{index % 2}"
            roots.pin(space, f"root {index}", self.lease(cache, 20), None, 2.0 + index)
        released = [roots.release_one() for _ in range(2)]
        assert released == [True, True]
        assert roots.has(("modest", "space"), "first")
        assert roots.has(("greedy", "0"), "root 2")

    def test_nothing_is_pinned_twice_or_for_no_tokens(self, cache):
        roots = Roots(cache, 10.0)
        roots.pin(SPACE, "root", self.lease(cache, 20), 2, 0.0)
        roots.pin(SPACE, "root", self.lease(cache, 30), 2, 0.0)
        roots.pin(SPACE, "empty", self.lease(cache, 0), 2, 0.0)
        assert len(roots) == 1
        assert cache.num_locked == 30
        roots.unpin(SPACE, "root")
        assert cache.num_locked == 0
        cache.check(0)


def test_a_tenant_releases_no_root_of_another_in_the_same_namespace(bench, call):
    world = bench(num_slots=250)
    world.run([plant(call, tenant="one"), plant(call, "another root", tenant="two")])
    assert len(world.roots) == 2
    world.run([plant(call, ROOT[:1], branches=0, tenant="two")])  # its own
    assert len(world.roots) == 1
    flood(world, call)
    assert is_cached(world, ROOT)


def test_a_namespace_is_no_tenant_of_another_text(bench, call):
    world = bench(num_slots=250)
    world.run([plant(call, tenant="one", namespace="a"), plant(call, namespace="one\0a")])
    assert world.roots.has(("one", "a"), "root")
    assert world.roots.has(("one\0a", "one\0a"), "root")
    assert world.roots.held().keys() == {"one", "one\0a"}


def root_of(cache, number, size=10):
    """A lease of tokens that nothing else holds."""
    tokens = np.arange(size, dtype=np.int32) + 1000 * number
    lease = cache.acquire("", tokens, size)
    cache.commit(lease, tokens, cache.allocate(size))
    return lease


def send(trust, name, announced, come, now, tenant="me"):
    """The calls of a root: one sends it ahead, and then branches come. All are short."""
    key = tenant, name
    trust.arrive("ahead", key, tenant, announced, False)
    for number in range(come):
        trust.arrive(number, key, tenant, announced, True)
    for call in ("ahead", *range(come)):
        trust.leave(call, key, tenant, now)


def num_pinned(announced, come):
    """Roots of ten tokens that a tenant has pinned at once, of many with so many branches."""
    cache = RadixCache(1000)
    roots = Roots(cache, timeout=100.0)
    for number in range(300):
        now, name = 0.1 * number, f"{number}"
        roots.pin(("me", ""), name, root_of(cache, number), announced, now)
        send(roots.trust, name, announced or 0, come, now)
        roots.expire(now)
    return len(roots)


def test_who_announces_branches_that_do_not_come_may_pin_less():
    assert num_pinned(announced=8, come=8) == num_pinned(announced=None, come=0) == 50
    assert 10 <= num_pinned(announced=8, come=1) <= 12


def test_calls_with_hints_tell_which_branches_come(bench, call):
    world = bench()
    world.run([plant(call, branches=4)])
    world.run([branch(call, f"{ROOT}{number}") for number in range(3)])
    world.run([branch(call, "another", root="single", branches=2)])
    world.now = PATIENCE + 0.1
    world.run([call("more")])
    assert world.roots.trust.of("") == pytest.approx(1 - 0.1 * 0.25 * 0.9 - 0.1 * 0.5, abs=0.01)


def test_a_tenant_is_trusted_again_once_its_branches_come():
    trust = Trust()
    send(trust, "unknown", 0, 1, 0.0)
    assert trust.of("me") == 1.0
    for number in range(50):
        send(trust, f"{number}", 4, 1, 0.0)
    trust.expire(PATIENCE - 0.1)
    assert trust.of("me") == 1.0
    trust.expire(PATIENCE)
    assert 0.25 <= trust.of("me") < 0.26
    assert trust.of("other") == 1.0
    for number in range(50, 100):
        send(trust, f"{number}", 1, 3, 20.0)
    trust.expire(40.0)
    assert 0.99 < trust.of("me") <= 1.0


def test_slow_branches_are_awaited_as_long_as_calls_of_their_root_are_open():
    trust, key = Trust(), ("me", "root")
    trust.arrive("ahead", key, "me", 8, False)
    trust.expire(10.0)  # computing the root takes this long
    running = []
    for number in range(8):  # two at a time, five seconds each
        trust.arrive(number, key, "me", 0, True)
        running.append(number)
        if number == 0:
            trust.leave("ahead", key, "me", 10.0)
        if len(running) == 2:
            trust.expire(10.0 + 5 * number)
            trust.leave(running.pop(0), key, "me", 10.0 + 5 * number)
    for number in running:
        trust.leave(number, key, "me", 50.0)
    trust.expire(50.0 + PATIENCE)
    assert trust.of("me") == 1.0


def test_a_late_branch_does_not_announce_all_of_them_again():
    trust = Trust()
    send(trust, "root", 4, 3, 0.0)
    trust.expire(PATIENCE)
    judged = trust.of("me")
    send(trust, "root", 4, 1, 10.0)
    trust.expire(10.0 + PATIENCE)
    assert trust.of("me") == judged == pytest.approx(1 - 0.1 / 4)
    trust.expire(PATIENCE + MEMORY)
    send(trust, "root", 4, 4, 100.0)
    trust.expire(100.0 + PATIENCE)
    assert trust.of("me") > judged


def test_a_flood_of_announcements_takes_no_memory_and_harms_no_other(monkeypatch):
    monkeypatch.setattr(trusts, "MOST_ROOTS", 3)
    trust, key = Trust(), ("me", "root")
    trust.arrive("ahead", key, "me", 2, False)
    trust.leave("ahead", key, "me", 0.0)
    for number in range(100):
        send(trust, f"{number}", 4, 0, 0.1, tenant="liar")
    (mine, liar) = trust._tenants.values()
    assert len(mine.awaited) == 1
    assert len(liar.awaited) == len(liar.judged) == 3
    assert trust.of("liar") < 0.01
    for number in range(2):
        trust.arrive(number, key, "me", 0, True)
        trust.leave(number, key, "me", 0.2)
    trust.expire(1 + PATIENCE)
    assert trust.of("me") == 1.0
    trust.expire(2 + PATIENCE + MEMORY)
    assert not trust._tenants


def test_a_call_that_is_refused_announces_nothing(bench, call):
    world = bench(max_waiting=1)
    for number in range(5):
        world.submit(plant(call, root=f"root {number}", branches=4))
    (known,) = world.roots.trust._tenants.values()
    assert len(known.open) == 1
    world.drain()
