"""Programs that the pool cannot hold all at once do not evict one another's texts; what waits for
a program waits for no other tenant's, and not for long."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.core.api.protocol import Call, ForkHint, Sampling, Tokens
from forkroot.core.engine import pauses
from forkroot.core.engine.accounting import working_sets
from forkroot.core.engine.accounting.working_sets import LATE, SOON, WorkingSets

NUM_CALLS = 4


def call_of(ids, max_tokens=12, hint=None, **fields):
    sampling = Sampling(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    return Call((Tokens(tuple(ids)),), sampling, hint=hint, **fields)


def goes_on(name, calls_left=1, **fields):
    return ForkHint("", program=name, calls_left=calls_left, next_use=min(calls_left, 1), **fields)


def text_of(number, size=60):
    """A text that shares nothing with those of other numbers."""
    return [(number * 37 + position * (number + 3)) % 250 + 1 for position in range(size)]


class Chain:
    """A program that calls again and again with all that was written, a step after each answer."""

    def __init__(self, number, has_hints, namespace="", kind=None):
        self.name, self.ids, self.num_left = f"chain {number}", text_of(number), NUM_CALLS
        self.has_hints, self.namespace, self.reply, self.is_late = has_hints, namespace, None, True
        self.kind = kind

    def go_on(self, world):
        """After a step; whether it is not over."""
        if self.reply is not None and self.reply.done():
            self.ids += [*self.reply.result(0).outputs[0].ids, 7, 8, 9]
            self.reply, self.is_late = None, True
        elif self.reply is None and self.is_late:
            self.is_late = False
        if self.reply is None and not self.is_late and self.num_left:
            self.num_left -= 1
            hint = goes_on(self.name, self.num_left, kind=self.kind) if self.has_hints else None
            call = call_of(self.ids, hint=hint, namespace=self.namespace)
            self.reply = world.submit(call)
        return self.num_left > 0 or self.reply is not None


def run(world, programs):
    for _ in range(3000):
        if not [it for it in programs if it.go_on(world)] and not world.engine.has_work:
            break
        world.step()
        world.now += 0.01
    assert not world.engine.has_work
    return world.engine.counters.computed_tokens


def test_programs_in_turn_do_not_evict_what_others_come_back_to(bench):
    sizes = {"num_slots": 300, "max_running": 8}
    texts, computed = [], {}
    for has_hints in (False, True):
        world = bench(**sizes)
        programs = [Chain(number, has_hints) for number in range(9)]
        computed[has_hints] = run(world, programs)
        texts.append([it.ids for it in programs])
    least = sum(len(ids) for ids in texts[0])
    assert texts[0] == texts[1]
    assert computed[True] < 1.8 * least
    assert computed[True] < 0.65 * computed[False]


def test_programs_begin_only_where_there_is_room_for_what_they_add(bench):
    world = bench(num_slots=300, max_running=8, ageing=4)
    run(world, [Chain(100, True, kind="chain")])  # from which it is known what they add
    world.engine.clear_cache()
    before = world.engine.counters.computed_tokens
    programs = [Chain(number, True, kind="chain") for number in range(9)]
    computed = run(world, programs) - before
    assert computed <= 1.02 * sum(len(it.ids) for it in programs)


class Votes:
    """A program whose branches each call twice with the text of one root, which goes before."""

    def __init__(self, number, has_hints):
        self.name, self.root, self.hints = f"votes {number}", text_of(number, 80), has_hints
        self.replies, self.waits, self.num_asked = [], 0, 0

    def go_on(self, world):
        """After a step; whether it is not over."""
        if not all(reply.done() for reply in self.replies):
            return True
        if self.num_asked == 3:
            return False
        self.waits += 1
        if self.waits < 3:
            return True
        self.waits, self.num_asked = 0, self.num_asked + 1
        if self.num_asked == 1:
            hint = ForkHint("root", program=self.name, branches=6, kind="votes")
            ahead = [call_of(self.root, 0, hint if self.hints else None)]
            self.replies = [world.submit(it) for it in ahead if self.hints]
            return True
        left = 3 - self.num_asked
        hint = ForkHint("root", program=self.name, calls_left=left, next_use=left, kind="votes")
        prompts = [[*self.root, 250 - branch, *range(1, 9)] for branch in range(3)]
        ends = [*range(30, 40)] if left == 0 else []
        calls = [call_of([*it, *ends], 4, hint if self.hints else None) for it in prompts]
        self.replies = [world.submit(it) for it in calls]
        return True


def test_what_a_program_comes_back_to_goes_after_what_is_over(bench):
    def computed(num_slots):
        world = bench(num_slots=num_slots, max_running=12, ageing=4)
        run(world, [Votes(50, True)])
        world.engine.clear_cache()
        before = world.engine.counters.computed_tokens
        return run(world, [Votes(number, True) for number in range(8)]) - before

    assert computed(420) <= 1.15 * computed(3000)


def test_programs_beside_a_flood_begin_only_where_their_share_has_room(bench):
    def flooded(num_slots):
        world = bench(num_slots=num_slots, max_running=12, ageing=4)
        run(world, [Chain(100, True, kind="chain")])
        world.engine.clear_cache()
        before, number = world.engine.counters.computed_tokens, 0
        programs, others = [Chain(it, True, kind="chain") for it in range(9)], 0
        reply = None
        for _ in range(3000):
            if not [it for it in programs if it.go_on(world)]:
                break
            if reply is None or reply.done():
                reply, number = world.submit(flood_of(number)), number + 1
                others += 42
            world.step()
            world.now += 0.01
        world.drain()
        return world.engine.counters.computed_tokens - before - others

    assert flooded(600) <= 1.4 * flooded(4000)


def flood_of(number):
    """A call of another tenant that shares nothing."""
    ids = [(number * 7 + position * (number % 11 + 2)) % 250 + 1 for position in range(40)]
    return call_of([number % 250 + 1, number // 250 + 1, *ids[2:]], 2, namespace="flood")


def test_programs_of_an_unknown_kind_begin_at_once(bench):
    started = []
    for kind in ("chain", "other"):
        world = bench(num_slots=300, max_running=8)
        run(world, [Chain(100, True, kind="chain")])
        world.engine.clear_cache()
        for number in range(4):
            world.submit(call_of(text_of(number), 12, goes_on(f"{number}", 3, kind=kind)))
        for _ in range(6):
            world.step()
        started.append(len(world.scheduler.running))
    assert started == [2, 4]


def test_an_engine_idles_for_a_moment_before_another_program_begins(bench):
    world = bench(num_slots=200)
    world.submit(call_of(text_of(1, 100), 2, goes_on("program")))
    world.drain()
    new = world.submit(call_of(text_of(3, 150), 1, goes_on("new")))
    other = world.submit(call_of(text_of(4, 40), 1, namespace="other"))
    assert steps_until(world, other) < 8
    world.step()
    assert not new.done()
    assert world.engine.is_waiting
    world.now = SOON + 0.01
    assert steps_until(world, new) < 8
    assert not world.engine.is_waiting


def test_an_engine_idles_no_longer_than_it_takes_to_compute_again(bench, monkeypatch):
    world = bench(num_slots=200)
    monkeypatch.setattr(world.scheduler.shares, "prefill_seconds", lambda num_tokens: SOON / 5)
    world.submit(call_of(text_of(1, 100), 2, goes_on("program")))
    world.drain()
    new = world.submit(call_of(text_of(3, 150), 1, goes_on("new")))
    assert steps_until(world, new, 5) == 5
    world.now = SOON / 5 + 0.001
    assert steps_until(world, new) < 8


def test_no_call_waits_where_that_costs_more_than_to_compute_again(bench, monkeypatch):
    world, running = crowded(bench)
    monkeypatch.setattr(world.scheduler.shares, "rather_computes", lambda *work: True)
    waiting = world.submit(call_of(text_of(3, 50), 1))
    assert steps_until(world, waiting) < 8
    assert not running.done()
    world.drain()


def test_a_call_that_waited_for_a_due_program_runs_soon_though_another_tenant_is_busy(bench):
    world = bench(num_slots=300, max_running=4)
    world.submit(call_of(text_of(1, 100), 2, goes_on("program")))
    world.drain()
    world.submit(call_of(text_of(2, 10), 100, namespace="other"))
    for _ in range(3):
        world.step()
    new = world.submit(call_of(text_of(3, 170), 1, goes_on("new")))
    world.step()
    assert world.scheduler.pauses.held_back == {""}
    world.now = SOON + 0.001
    assert steps_until(world, new) < 8
    assert world.now < LATE
    world.drain()


def test_a_text_is_expected_as_long_after_a_slow_step(bench):
    world = bench(num_slots=200, max_running=4)
    run = world.runner.run

    def slow(batch):
        world.now += 2 * LATE
        return run(batch)

    world.runner.run = slow
    world.submit(call_of(text_of(2, 10), 60))
    answer = world.submit(call_of(text_of(1, 60), 2, goes_on("program")))
    while not answer.done():
        world.step()
    sets, ended = world.scheduler.pauses.working_sets, world.now
    sets.expire(ended + LATE - 0.01)
    assert sets.reserved(call_of([1])) > 0
    sets.expire(ended + LATE)
    assert sets.reserved(call_of([1])) == 0


def test_a_call_that_waits_for_its_own_programs_retracts_no_call_of_another_tenant(bench):
    world = bench(num_slots=400, max_running=6, context_len=256, chunk_tokens=256)
    world.submit(call_of(text_of(1, 60), 2, goes_on("program", pause=0.45)))
    world.drain()
    world.submit(call_of(text_of(8, 5), 200))
    for number in range(3):
        world.submit(call_of(text_of(2 + number, 60), 60, namespace="other"))
    for _ in range(10):
        world.step()
    new = world.submit(call_of(text_of(9, 150), 1))
    for _ in range(20):
        world.step()
    assert not new.done()
    assert world.scheduler.pauses.held_back == {""}
    assert world.engine.counters.retracted == 0
    world.now = 1.0
    world.drain()


def test_calls_that_are_held_back_lock_nothing_and_are_counted_to_a_limit(bench, monkeypatch):
    monkeypatch.setattr(pauses, "TRIED_PER_STEP", 3)
    world, running = crowded(bench)
    waiting = [world.submit(call_of(text_of(n, 50), 1, goes_on(f"{n}"))) for n in range(3, 13)]
    acquired, counted = [], []
    acquire, reserved = world.cache.acquire, world.scheduler.pauses.working_sets.reserved
    monkeypatch.setattr(world.cache, "acquire", lambda *a: acquired.append(a) or acquire(*a))
    monkeypatch.setattr(
        world.scheduler.pauses.working_sets,
        "reserved",
        lambda call: counted.append(call) or reserved(call),
    )
    world.step()
    assert not acquired
    assert len(counted) == 3
    assert not running.done()
    while not all(it.done() for it in waiting):
        world.now += 0.01
        world.step()
    assert world.now < 10 * LATE


def test_the_name_of_a_program_that_is_over_is_that_of_a_new_one():
    sets = WorkingSets(count_of, hints=True)

    def call(program, calls_left, kind="writer"):
        return call_of([1], hint=ForkHint("", program=program, calls_left=calls_left, kind=kind))

    for run in range(3):
        for number, calls_left in enumerate([1, 0]):
            size = 100 * run + 30 * number
            sets.begin(number, call("writer 7", calls_left), size)
            sets.stop(call("writer 7", calls_left))
            tokens = np.full(size + 1, 1, np.int32)
            sets.arrive(2, call("writer 7", 0), tokens)
            sets.leave(2)
            sets.end(call("writer 7", calls_left), tokens, (10 * run + number, 0))
    sets.clear()
    assert sets.reserved(call("writer 8", 1)) == 31
    assert sets.reserved(call("writer 8", 1, "other")) == 0


def test_a_root_is_not_the_first_prompt_of_a_program():
    sets = WorkingSets(count_of, hints=True)
    hint = ForkHint("", program="program", calls_left=0, kind="judge")
    call = call_of([1], hint=hint)
    for size, is_root in ((20, True), (100, False)):
        sets.begin(size, call, size, is_root)
        sets.stop(call)
    sets.end(call, np.full(110, 1, np.int32), (1, 10))
    sets.clear()
    assert sets.reserved(call_of([1], hint=ForkHint("", program="new", kind="judge"))) == 10


def test_kinds_of_one_tenant_make_nobody_forget_those_of_another(monkeypatch):
    monkeypatch.setattr(working_sets, "MOST_KINDS", 3)
    sets = WorkingSets(count_of, hints=True)
    for number, name in enumerate(["modest", *["flood"] * 9]):
        hint = ForkHint("", program=f"{number}", calls_left=0, kind=f"kind {number}")
        call = call_of([1], hint=hint, namespace=name)
        sets.begin(number, call, 10)
        sets.stop(call)
        sets.end(call, np.full(60, 1, np.int32), (number, 0))
    added = [
        sets.reserved(call_of([1], hint=ForkHint("", program="new", kind=kind), namespace=name))
        for name, kind in (("modest", "kind 0"), ("flood", "kind 1"), ("flood", "kind 9"))
    ]
    assert added == [50, 0, 50]


def test_no_more_texts_and_tenants_are_remembered_than_are_allowed(monkeypatch):
    monkeypatch.setattr(working_sets, "MOST_TEXTS", 2)
    monkeypatch.setattr(working_sets, "MOST_OWNERS", 2)
    sets = WorkingSets(count_of, hints=True)
    for owner in range(4):
        call = call_of([1], hint=goes_on("program"), namespace=f"{owner}")
        for number in range(5):
            sets.begin(number, call, 1)
            sets.end(call, np.array([1], np.int32), (10 * owner + number, 10))
    held = [sets.reserved(call_of([1], namespace=f"{owner}")) for owner in range(4)]
    assert held == [0, 0, 20, 20]
    sets.clear()
    assert sets.reserved(call_of([1], namespace="3")) == 0


def test_what_a_program_that_is_over_has_left_is_soon_available():
    sets = WorkingSets(count_of, hints=True)
    for number, calls_left in enumerate([1, 0]):
        call = call_of([1], hint=ForkHint("", program="program", calls_left=calls_left))
        sets.begin(number, call, 1)
        sets.stop(call)
        sets.end(call, np.array([1], np.int32), (number, 10))
    assert sets.reserved(call_of([1])) == 10
    assert sets.expire(SOON + 0.01)
    assert sets.reserved(call_of([1])) == 0


def test_a_hint_costs_nothing_where_all_programs_fit(bench):
    computed = []
    for has_hints in (False, True):
        world = bench(num_slots=4000, max_running=16)
        computed.append(run(world, [Chain(number, has_hints) for number in range(9)]))
        assert world.engine.counters.retracted == 0
    assert computed[0] == computed[1]


def crowded(bench, **settings):
    """A pool that is nearly full of what a program will use again, beside a long call that runs."""
    world = bench(num_slots=200, max_running=4, **settings)
    world.submit(call_of(text_of(1, 100), 2, goes_on("program")))
    world.drain()
    running = world.submit(call_of(text_of(2, 40), 120))
    world.step()
    return world, running


def steps_until(world, reply, most=60):
    for number in range(most):
        if reply.done():
            return number
        world.step()
    return most


def test_a_call_waits_for_a_program_that_is_expected_back_and_not_longer(bench):
    world, running = crowded(bench)
    waiting = world.submit(call_of(text_of(3, 50), 1))
    assert steps_until(world, waiting, 10) == 10
    world.now = LATE + 0.01
    assert steps_until(world, waiting) < 5
    assert not running.done()
    world.drain()


def test_a_program_that_waits_keeps_its_text_until_it_runs(bench):
    world = bench(num_slots=200, max_running=2)
    ids = text_of(1, 100)
    world.submit(call_of(ids, 2, goes_on("program")))
    world.drain()
    running = [world.submit(call_of(text_of(2, 10), 30)) for _ in range(2)]
    world.step()
    back = world.submit(call_of(ids, 1, goes_on("program", 0)))
    world.now = 10 * LATE
    new = world.submit(call_of(text_of(3, 80), 1))
    world.drain()
    assert back.result(0).usage.cached_tokens == len(ids) - 1
    assert all(reply.done() for reply in (*running, new))


@pytest.mark.parametrize("end", ["cancel", "deadline"])
def test_a_call_that_ends_while_it_waits_holds_nothing(bench, end):
    world, _ = crowded(bench)
    world.submit(call_of(text_of(4, 10), 60))
    world.submit(call_of(text_of(5, 10), 60))
    world.submit(call_of(text_of(6, 1), 60))
    world.step()
    back = world.submit(call_of(text_of(1, 100), 1, goes_on("program", 0), deadline=0.1))
    assert world.scheduler.pauses.working_sets.reserved(call_of([1])) > 0
    if end == "cancel":
        world.cancel(back)
    else:
        world.now = 0.2
        world.step()
    assert world.scheduler.pauses.working_sets.reserved(call_of([1])) == 0
    world.drain()


@pytest.mark.parametrize(
    "hint",
    [
        None,
        ForkHint("", program="program"),
        goes_on("program", 0),
        goes_on("program", pause=0.6),
    ],
)
def test_nothing_waits_for_a_program_that_does_not_come_back_soon(bench, hint):
    world = bench()
    world.submit(call_of(text_of(1, 100), 2, hint))
    world.drain()
    assert world.scheduler.pauses.working_sets.reserved(call_of([1])) == 0


def test_a_call_does_not_wait_where_nothing_of_its_tenant_runs(bench):
    world, _ = crowded(bench)
    other = world.submit(call_of(text_of(3, 50), 1, namespace="other"))
    assert steps_until(world, other) < 8
    world.drain()
    alone = bench(num_slots=200)
    alone.submit(call_of(text_of(1, 100), 2, goes_on("program")))
    alone.drain()
    waiting = alone.submit(call_of(text_of(3, 150), 1))
    assert steps_until(alone, waiting) < 8


def test_a_call_that_waited_long_enough_waits_for_no_program(bench):
    world, _ = crowded(bench, ageing=64)
    waiting = world.submit(call_of(text_of(3, 50), 1))
    small = [world.submit(call_of(text_of(9, 3), 1)) for _ in range(6)]
    assert steps_until(world, waiting) < 30
    world.drain()
    assert all(reply.done() for reply in small)


def test_a_tenant_that_waits_for_its_own_programs_takes_no_more_rows_of_another(bench):
    retracted = []
    for hint in (None, goes_on("program")):
        world = bench(num_slots=200, max_running=4)
        world.submit(call_of(text_of(1, 100), 2, hint))
        world.drain()
        own = world.submit(call_of(text_of(2, 40), 40))
        others = [world.submit(call_of(text_of(9, 2), 30, namespace="other")) for _ in range(3)]
        world.step()
        held = world.submit(call_of(text_of(3, 30), 1))
        for _ in range(20):
            world.step()
        retracted.append(world.engine.counters.retracted)
        assert held.done() == (hint is None)
        world.drain()
        assert all(reply.done() for reply in (own, held, *others))
    assert retracted[1] <= retracted[0]


def count_of(place, seen):
    """The slots of a place that is its number and its size."""
    return 0 if place in seen else seen.add(place) or place[1]


def test_what_branches_share_stays_for_the_last_one_that_comes_back(bench):
    world = bench(num_slots=220, max_running=4)
    root, hint = text_of(1, 80), goes_on("program")
    texts = [(*root, *text_of(number, 10)) for number in (4, 5)]
    for ids in texts:
        world.submit(call_of(ids, 2, hint))
    world.drain()
    running = world.submit(call_of(text_of(2, 40), 100))
    world.step()
    new = world.submit(call_of(text_of(3, 90), 1))
    for ids in texts:
        world.step()
        back = world.submit(call_of(ids, 1, goes_on("program", 0)))
        assert steps_until(world, back) < 5
        assert back.result(0).usage.cached_tokens == len(ids) - 1
        assert not new.done()
    assert steps_until(world, new) < 5
    assert not running.done()
    world.drain()


def test_a_tenant_that_floods_loses_its_own_programs_only(monkeypatch):
    monkeypatch.setattr(working_sets, "MOST_PROGRAMS", 3)
    sets = WorkingSets(count_of, hints=True)
    for number, name in enumerate(["modest", *["flood"] * 9]):
        call = call_of([1], hint=goes_on(f"program {number}"), namespace=name)
        sets.begin(number, call, 1)
        sets.end(call, np.array([1], np.int32), (number, 10))
    assert sets.reserved(call_of([1], namespace="modest")) == 10
    assert sets.reserved(call_of([1], namespace="flood")) == 30


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 30)), max_size=60))
@settings(max_examples=80, deadline=None)
def test_what_is_reserved_is_what_programs_have_left_and_not_taken(events):
    sets, waiting, now = WorkingSets(count_of, hints=True), {}, 0.0
    left: dict[int, list[int]] = {}
    for number, (kind, program, size) in enumerate(events):
        call = call_of([1], hint=goes_on(f"program {program}"))
        ids = np.full(size, program + 1, np.int32)
        if kind == 0:
            sets.begin(number, call, size)
            left.setdefault(program, [])
        elif kind == 1 and program in left:
            sets.end(call, ids, (number, size))
            left[program].append(size)
        elif kind == 2:
            sets.arrive(number, call, ids)
            waiting[number] = call
        elif kind == 3 and waiting:
            user, its = waiting.popitem()
            sets.begin(user, its, size)
        else:
            now += size
            sets.expire(now)
        texts = [it for one in sets._programs.get("", {}).values() for it in one.texts]
        total = sum(it.lease[1] for it in texts)
        sets.note_locks()
        assert sets.reserved(call_of([1])) == total <= sum(map(sum, left.values()))
        assert all(it.expires > now for it in texts)
    for user in waiting:
        sets.leave(user)
    sets.expire(now + 1.0)
    assert sets.reserved(call_of([1])) == 0
