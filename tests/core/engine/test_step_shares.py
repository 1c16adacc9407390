"""Steps stay short while another tenant is there, by an estimate of what they take."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.benchmarks.common.fake_runner import FakeRunner, LateRunner
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import Call, Sampling, Text
from forkroot.core.engine.accounting.step_costs import StepCosts, Work

LARGE = {"num_slots": 140_000, "context_len": 2048, "max_running": 64, "chunk_tokens": 1024}
MS = 1e-3


class Timed(FakeRunner):
    """Takes time by the clock of its world, as a small model on one core: a fixed part, more with
    prompts, and more for each row, prompt token and scored token."""

    def __init__(self, num_slots: int, scale: float = 1.0) -> None:
        super().__init__(num_slots)
        self.scale = scale
        self.world = None
        self.seconds: list[float] = []
        self.seen: list[Counter[str]] = []

    def run(self, batch: Batch) -> Outcome:
        lens = batch.lens.tolist()
        rows, tokens = lens.count(1), sum(it for it in lens if it > 1)
        prompts = 1.5 + 0.03 * tokens + 0.03 * len(batch.scored) if tokens else 0.0
        taken = 0.6 + 0.06 * rows + prompts
        self.seconds.append(taken * MS * self.scale)
        self.world.now += self.seconds[-1]
        ids = batch.ids.tolist()
        starts = (batch.lens.cumsum() - batch.lens).tolist()
        self.seen.append(Counter(chr(ids[start]) for start in starts))
        return super().run(batch)


@pytest.fixture(scope="session")
def timed(bench):
    """A world whose steps take time."""

    def make(scale: float = 1.0, **sizes):
        sizes = LARGE | sizes
        timed = Timed(sizes["num_slots"], scale)
        runner = LateRunner(timed) if sizes.get("overlap") else timed
        timed.world = bench(runner, **sizes)
        timed.world.timed = timed
        return timed.world

    return make


def scored(index: int, size: int = 1900) -> Call:
    """A prompt of which every token is scored."""
    sampling = Sampling(max_tokens=1, temperature=0.0, logprobs=0)
    return Call((Text(f"{index:04}" * (size // 4)),), sampling, scored_from=1, tenant="greedy")


def latencies(world, call, count: int) -> list[float]:
    """Seconds from the arrival of each of some calls of another tenant, at any moment of a step, to
    its end. Between them it is silent for a while."""
    chance, found = random.Random(count), []
    for index in range(count):
        until = world.now + chance.uniform(0, 0.03)
        start = world.now
        while world.now < until:
            if not world.engine.has_work:
                world.now = until
                break
            start = world.now
            world.step()
        arrived = max(until, start)
        reply = world.submit(call(f"a{index:03}", max_tokens=1, tenant="modest"))
        while not reply.done():
            world.step()
        found.append(world.now - arrived)
    return found


def num_new(world, reply) -> int:
    """Tokens that a call has generated so far."""
    return world.jobs[reply].sequences[0].num_new


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_a_call_beside_scored_prompts_takes_little_longer_than_two_steps(
    timed, call, overlap, scale
):
    """Before, each step took 64 ms (times the scale), and a call up to two of them."""
    world = timed(scale, overlap=overlap)
    latencies(world, call, 3)
    first = len(world.timed.seconds)
    for index in range(64):
        world.submit(scored(index))
    found = latencies(world, call, 25)
    assert max(world.timed.seconds[first:]) <= 7 * MS * scale
    assert max(found) <= 10 * MS * scale
    assert world.engine.counters.computed_tokens / world.now > 2_000 / scale  # it goes on


@pytest.mark.parametrize("overlap", [False, True])
def test_a_call_beside_200_streams_takes_little_longer_than_two_steps(timed, call, overlap):
    world = timed(overlap=overlap)
    latencies(world, call, 3)
    streams = [
        world.submit(call(f"s{i:03}", max_tokens=1000, ignore_eos=True, tenant="greedy"))
        for i in range(200)
    ]
    for _ in range(10):  # their prompts
        world.step()
    first, found = len(world.timed.seconds), latencies(world, call, 25)
    assert max(world.timed.seconds[first:]) <= 5 * MS
    assert max(found) <= 8 * MS
    rows = sum(sum(seen.values()) for seen in world.timed.seen[first:])
    assert rows > 5 * (len(world.timed.seen) - first)  # about 10 rows take as long as none
    running = [count for reply in streams if (count := num_new(world, reply))]
    assert max(running) - min(running) <= 20  # they take turns


def test_a_tenant_that_is_alone_has_whole_steps_again_after_a_while(timed, call):
    world = timed()
    latencies(world, call, 3)
    for index in range(8):
        world.submit(scored(index))
    sizes = []
    left = world.now
    while world.engine.has_work:
        before = world.engine.counters.computed_tokens
        world.step()
        sizes.append((world.now - left, world.engine.counters.computed_tokens - before))
    assert all(size <= 64 for time, size in sizes if time < 0.9)
    assert all(size == 1024 for time, size in sizes[:-2] if time > 1.1)
    assert sum(size == 1024 for _, size in sizes) >= 5


def test_nothing_is_retracted_each_time_that_a_tenant_comes_again(timed, call):
    """A row is kept for it for a while, then given to those that wait."""
    world = timed(max_running=16)
    latencies(world, call, 3)
    for index in range(40):
        made = call(f"s{index:02}", max_tokens=1000, ignore_eos=True, tenant="greedy")
        world.submit(made)
    latencies(world, call, 10)
    assert world.scheduler.num_retracted == 0
    assert len(world.scheduler.running) == 15
    left = world.now
    while world.now < left + 1.1:
        world.step()
    assert len(world.scheduler.running) == 16


def test_rows_are_kept_for_few_and_none_where_nothing_runs(timed, call):
    world = timed(max_running=2)
    world.run([call("a", max_tokens=1, tenant=f"tenant {index}") for index in range(9)])
    for _ in range(2):
        world.submit(call("b", max_tokens=50, ignore_eos=True, tenant="other"))
    for _ in range(3):
        world.step()
    assert len(world.scheduler.running) == 2


def test_a_tenant_that_was_always_alone_has_whole_steps(timed):
    world = timed()
    for index in range(4):
        world.submit(scored(index))
    world.drain()
    assert len(world.timed.seconds) <= 9  # 7,600 tokens


def test_weights_shift_how_long_steps_are_and_who_gets_them(timed, call):
    def longest(weight: float) -> float:
        world = timed()
        options = {"max_tokens": 1000, "ignore_eos": True}
        world.submit(call("m", tenant="modest", **options))
        for index in range(60):
            made = call(f"s{index:02}", tenant="greedy", weight=weight, **options)
            world.submit(made)
        for _ in range(40):
            world.step()
        return float(np.median(world.timed.seconds[-20:]))

    equal, heavy, heaviest = (longest(weight) for weight in (1.0, 4.0, 16.0))
    assert equal < heavy < heaviest
    assert equal <= 1.7 * 0.66 * MS


def test_many_tenants_that_want_the_same_are_not_limited(timed, call):
    world = timed()
    for index in range(40):
        made = call(f"{index:02}", max_tokens=50, ignore_eos=True, tenant=f"tenant {index}")
        world.submit(made)
    for _ in range(20):
        world.step()
    assert [sum(seen.values()) for seen in world.timed.seen[-5:]] == [40] * 5


CALLS = st.lists(
    st.tuples(
        st.sampled_from(("ab", "abc" * 20, "abd" * 30, "x" * 100)),
        st.integers(1, 30),
        st.sampled_from(("one", "two", "three")),
        st.integers(0, 4),
        st.booleans(),
    ),
    min_size=2,
    max_size=12,
)


@given(calls=CALLS, overlap=st.booleans(), scale=st.sampled_from((0.1, 1.0, 100.0)))
@settings(max_examples=15, deadline=None)
def test_limits_change_no_answer_and_all_calls_end(timed, bench, call, calls, overlap, scale):
    """Also where memory is short, so that sequences are retracted."""
    sizes = {"num_slots": 400, "max_running": 4, "chunk_tokens": 48, "context_len": 256}
    world = timed(scale, overlap=overlap, **sizes)
    replies = []
    for text, max_tokens, tenant, steps, is_scored in calls:
        options = {"scored_from": 1, "logprobs": 0} if is_scored else {}
        made = call(text, max_tokens=max_tokens, ignore_eos=True, tenant=tenant, **options)
        replies.append(world.submit(made))
        for _ in range(steps):
            world.step()
    world.drain(2_000)
    for reply in replies:
        expected = bench(**sizes).run([reply.call])[0]
        assert reply.result().text == expected.text
        scores = [it.logprob for it in reply.result().prompt_logprobs]
        assert scores == [it.logprob for it in expected.prompt_logprobs]


def test_costs_of_steps_are_found_in_spite_of_rare_long_ones():
    costs, chance = StepCosts(), random.Random(0)

    def seconds(work: Work) -> float:
        prompts = 1.5 + 0.03 * work.tokens + 0.05 * work.scored if work.tokens else 0.0
        return (0.6 + 0.06 * work.rows + prompts) * MS

    for _ in range(600):
        tokens = chance.choice((0, 0, 0, 16, 64, 900))
        work = Work(chance.randrange(1, 60), tokens, chance.choice((0, tokens)))
        late = 20 if chance.random() < 0.05 else 1
        costs.note(work, seconds(work) * late * chance.uniform(0.95, 1.05))
    for work in (Work(1), Work(60), Work(2, 16, 0), Work(0, 512, 512), Work(30, 1000, 0)):
        assert costs.base + costs.of(work) == pytest.approx(seconds(work), rel=0.2)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_steps_that_took_no_time_teach_nothing(seconds):
    costs = StepCosts()
    costs.note(Work(1), seconds)
    assert costs.base == 0.0


def test_costs_that_change_are_learnt_anew():
    costs = StepCosts()
    for factor in (1.0, 30.0):
        for index in range(1000):
            rows = 1 + index % 8
            costs.note(Work(rows), factor * (1 + 0.1 * rows))
    assert costs.base == pytest.approx(30.0, rel=0.1)


def test_rows_of_about_the_same_context_teach_nothing_of_what_context_costs():
    """What differs by chance counts as of every step."""
    costs, chance = StepCosts(), random.Random(1)
    for _ in range(200):
        costs.note(Work(1, context=chance.choice((4, 5, 6))), MS * chance.choice((1, 1, 1, 4)))
    assert costs.base > 0.5 * MS
    assert costs.of(Work(8, context=8 * 1000)) < 60 * MS
    assert costs.of(Work(1, context=5)) < 0.3 * costs.base


def test_costs_that_grow_with_the_context_are_found():
    costs, chance = StepCosts(), random.Random(2)
    for index in range(400):
        rows, length = chance.randrange(1, 12), 4 * index
        work = Work(rows, 0, 0, rows * length)
        costs.note(work, (1.0 + 0.04 * rows + 0.0004 * work.context) * MS)
    found = costs.base + costs.of(Work(8, context=8 * 1600))
    assert found == pytest.approx(6.44 * MS, rel=0.2)


def test_the_first_step_beside_another_is_little_larger_than_those_before(timed, call):
    """What is not known of larger steps is learnt in small ones."""
    world = timed()
    latencies(world, call, 20)
    for index in range(8):
        world.submit(scored(index))
    world.submit(call("a", max_tokens=1, tenant="modest"))
    first = world.timed.seconds
    before = len(first)
    for _ in range(3):
        world.step()
    assert max(first[before:]) <= 4 * MS


def test_a_prompt_is_computed_again_where_that_takes_less_than_a_sequence_saves(bench):
    shares = bench().scheduler.shares
    assert not shares.rather_computes(1, 1000, 1)  # nothing is known
    costs = shares._costs
    for rows, tokens in [(1, 0), (8, 0), (4, 64), (2, 256), (30, 0), (1, 500)] * 8:
        costs.note(Work(rows=rows, tokens=tokens), (3.0 + 0.05 * rows + 0.02 * tokens) * MS)
    assert shares.rather_computes(300, 24, 4)  # 6 ms against 24 / 5 of 3 ms
    assert not shares.rather_computes(300, 24, 16)
    assert not shares.rather_computes(300, 1, 1)
    assert not shares.rather_computes(3000, 24, 4)
