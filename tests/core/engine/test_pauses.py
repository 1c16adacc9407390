"""Programs between two calls: what they come back to stays, or comes back from the host in time;
no hint takes another tenant's memory for itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.core.api.protocol import Call, ForkHint, Sampling, Tokens
from forkroot.core.engine import pauses

from ..conftest import Bench

AGENT = tuple(i % 90 + 1 for i in range(140))


def ask(world, *ids, hint=None, max_tokens=2, **fields):
    """A call from start to end; its answer."""
    sampling = Sampling(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    reply = world.submit(Call((Tokens(ids),), sampling, hint=hint, **fields))
    world.drain()
    return reply.result(0)


def paused(program="agent", pause=1.0, next_use=1, **fields):
    """A hint of a program that goes on."""
    return ForkHint("", program=program, calls_left=3, next_use=next_use, pause=pause, **fields)


def flood(world, count=6, **fields):
    """Calls that share nothing."""
    for number in range(count):
        ask(world, *range(100 + number, 180 + number), **fields)


def left(world, *ids):
    """How many of these tokens are cached, in the pool or on the host."""
    return world.cache.match("", ids, len(ids)).length


def test_what_a_program_comes_back_to_outlives_a_flood(bench):
    world = bench(num_slots=400)
    ask(world, *AGENT, hint=paused())
    flood(world)
    assert left(world, *AGENT) == len(AGENT)
    answer = ask(world, *AGENT, 7, hint=ForkHint("", program="agent", calls_left=0, next_use=0))
    assert answer.usage.cached_tokens == len(AGENT)
    assert len(world.roots) == 0


@pytest.mark.parametrize(
    "hint",
    [
        None,
        paused(next_use=0),
        ForkHint("", program="agent"),
        paused(pause=0.4),
        paused(pause=None),
    ],
)
def test_a_program_that_is_not_known_to_come_back_after_a_pause_holds_nothing(bench, hint):
    world = bench(num_slots=400)
    ask(world, *AGENT, hint=hint)
    assert len(world.roots) == 0
    assert world.cache.num_locked == 0


def test_a_program_that_does_not_come_back_holds_nothing_after_its_time(bench):
    world = bench(num_slots=400, root_timeout=5.0)
    ask(world, *AGENT, hint=paused(pause=10**9))
    assert world.engine.next_event() == 6.0
    world.now = 6.0
    world.engine.expire_roots()
    assert len(world.roots) == 0
    assert world.cache.num_locked == 0


def test_programs_that_came_first_keep_what_they_wrote(bench):
    world = bench(num_slots=600)
    texts = [[number + 1, *AGENT] for number in range(4)]
    for number, ids in enumerate(texts):
        ask(world, *ids, hint=paused(f"agent {number}"))
    flood(world, 8)
    assert world.cache.num_locked <= 300
    assert [left(world, *ids) == len(ids) for ids in texts] == [True, True, False, False]


def test_hints_of_one_tenant_keep_no_call_of_another_waiting(bench):
    world = bench(num_slots=400, max_running=4)
    for number in range(3):
        ids = (number + 1, *AGENT)
        ask(world, *ids, hint=paused(f"liar {number}", pause=10**6), namespace="liar")
    held = world.cache.num_locked
    endless = Call((Tokens((1, 2)),), Sampling(max_tokens=100, ignore_eos=True), namespace="liar")
    running = world.submit(endless)
    world.step()
    sampling = Sampling(max_tokens=1, temperature=0)
    modest = world.submit(Call((Tokens(range(1, 230)),), sampling, namespace="modest"))
    for _ in range(12):
        world.step()
    assert held > 0
    assert world.endings[modest] == 1
    assert world.endings[running] == 0
    world.drain()


def test_a_call_that_waited_long_enough_takes_what_its_own_tenant_holds(bench):
    world = bench(num_slots=340, max_running=4, ageing=64)
    ask(world, *AGENT, hint=paused(pause=10**6))
    replies = [world.submit(call_of(220))]
    for number in range(40):
        replies.append(world.submit(call_of(4, number)))
        world.step()
    world.drain()
    assert all(world.endings[reply] == 1 for reply in replies)


def call_of(size, first=0):
    """A call that shares nothing."""
    ids = tuple((first + i) % 200 + 1 for i in range(size))
    return Call((Tokens(ids),), Sampling(max_tokens=3, temperature=0, ignore_eos=True))


def test_a_long_pause_leaves_the_pool_first_and_comes_back_before_the_program(bench):
    world = bench(num_slots=400, host_slots=900)
    ask(world, *range(150, 200))
    ask(world, *AGENT, hint=paused(pause=4.0))
    assert world.cache.num_locked == 0
    flood(world, 5)
    saved = world.cache.host.num_saved
    assert saved >= len(AGENT) - 1
    assert world.engine.next_event() == pytest.approx(3.9)
    world.now = 3.9
    world.engine.expire_roots()
    assert world.cache.host.num_loaded >= len(AGENT) - 1
    world.engine.check()
    loaded = world.cache.host.num_loaded
    answer = ask(world, *AGENT, 7, hint=paused())
    assert answer.usage.cached_tokens == len(AGENT)
    assert world.cache.host.num_loaded == loaded


def test_programs_of_one_tenant_make_nobody_forget_those_of_another(bench, monkeypatch):
    monkeypatch.setattr(pauses, "MOST_PAUSED", 3)
    world = bench(num_slots=400, host_slots=900)
    ask(world, *AGENT, hint=paused(pause=5.0), namespace="honest")
    for number in range(6):
        ask(world, 7, hint=paused(f"agent {number}", pause=5.0), namespace="liar")
    owners = [owner for (owner, _), _ in world.scheduler.pauses._paused]
    assert owners == ["honest", "liar", "liar", "liar"]


def test_clearing_the_cache_forgets_what_was_to_come_back(bench):
    world = bench(num_slots=400, host_slots=900)
    ask(world, *AGENT, hint=paused(pause=4.0))
    world.engine.clear_cache()
    assert world.engine.next_event() is None
    assert world.cache.num_cached == 0


HINTS = st.one_of(
    st.none(),
    st.builds(
        ForkHint,
        root=st.sampled_from(("", "a", "b")),
        branches=st.sampled_from((None, 0, 1, 3)),
        program=st.sampled_from((None, "p", "q", "r")),
        calls_left=st.sampled_from((None, -1, 0, 2, 10**9)),
        tokens_left=st.sampled_from((None, -5, 0, 40, 10**12)),
        next_use=st.sampled_from((None, -1, 0, 1, 5)),
        pause=st.sampled_from((None, -1.0, 0.0, 0.3, 2.0, 1e12)),
    ),
)
CALLS = st.tuples(
    st.integers(1, 4), st.integers(1, 200), st.integers(0, 5), HINTS, st.sampled_from(("", "other"))
)


@settings(max_examples=12, deadline=None)
@given(st.lists(CALLS, min_size=4, max_size=14), st.sampled_from((0, 300)))
def test_no_hint_changes_an_answer_or_loses_a_slot(drawn, host_slots):
    found = []
    for is_hinted in (False, True):
        world = Bench(num_slots=420, host_slots=host_slots, max_running=3, root_timeout=3.0)
        replies = []
        for first, size, new, hint, namespace in drawn:
            ids = tuple(first * 20 + i % 61 for i in range(size))
            sampling = Sampling(max_tokens=new, temperature=0, ignore_eos=True)
            call = Call((Tokens(ids),), sampling, hint=hint, namespace=namespace)
            replies.append(world.submit(call if is_hinted else Call(call.prompt, sampling)))
            world.now += 0.2
            world.step()
            world.engine.expire_roots()
            world.engine.check()
        world.drain()
        found.append([reply.result(0).text for reply in replies])
        world.now += 100.0
        world.engine.expire_roots()
        assert len(world.roots) == 0
        assert world.cache.num_locked == 0
    assert found[0] == found[1]
