"""Tenants share rows, slots and the tokens of each step by weight; one alone notices nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forkroot.benchmarks.common.fake_runner import FakeRunner
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import Call, InvalidCall, Overloaded, Sampling, Text
from forkroot.core.common.fair_share import QUANTUM, FairShare

LARGE = {"num_slots": 140_000, "context_len": 2048, "max_running": 64, "chunk_tokens": 1024}


def steps_until_done(world, reply) -> int:
    """Steps that the engine makes until this call has ended."""
    before = world.steps
    while not reply.done():
        assert world.steps - before < 1_000, "the call is not answered"
        world.step()
    return world.steps - before


def long_text(index: int, size: int) -> str:
    """A text that shares no beginning with those of other indices."""
    return f"{index:04}" * (size // 4)


class Recorder(FakeRunner):
    """Counts the prompt tokens of each batch by the first character of their prompts."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.batches: list[Counter[str]] = []

    def run(self, batch: Batch) -> Outcome:
        ids, sizes, start = batch.ids.tolist(), Counter[str](), 0
        for size in batch.lens.tolist():
            sizes[chr(ids[start])] += size if size > 1 else 0
            start += size
        self.batches.append(sizes)
        return super().run(batch)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_call_is_answered_while_another_tenant_scores_64_prompts_of_2000_tokens(bench, overlap):
    """128,000 tokens in chunks of 1,024 take 125 steps."""
    world = bench(**LARGE, overlap=overlap)
    for index in range(64):
        scored = Sampling(max_tokens=1, temperature=0.0, logprobs=0)
        prompt = (Text(long_text(index, 2000)),)
        world.submit(Call(prompt, scored, scored_from=1, namespace="greedy"))
    for _ in range(3):
        world.step()
    reply = world.submit(Call((Text("Hi"),), Sampling(max_tokens=1), namespace="modest"))
    assert steps_until_done(world, reply) <= 3
    reply = world.submit(Call((Text("x" * 500),), Sampling(max_tokens=1), namespace="modest"))
    assert steps_until_done(world, reply) <= 3


@pytest.mark.parametrize("overlap", [False, True])
def test_calls_are_answered_while_another_tenant_holds_all_rows(bench, call, overlap):
    world = bench(max_running=8, context_len=256, num_slots=2_100, overlap=overlap)
    replies = [
        world.submit(call(f"{index}{index}", max_tokens=200, ignore_eos=True, tenant="greedy"))
        for index in range(20)
    ]
    for _ in range(10):
        world.step()
    assert world.scheduler.num_waiting == 12
    modest = [world.submit(call(text, max_tokens=2, tenant="modest")) for text in "abcd"]
    assert max(steps_until_done(world, reply) for reply in modest) <= 12
    world.drain()
    for reply in replies[:3]:  # whoever had to wait again gets the same answer
        assert reply.result().text == bench().run([reply.call])[0].text


def test_a_call_is_answered_while_another_tenant_holds_all_slots(bench, call):
    world = bench(num_slots=300, max_running=8)
    for index in range(6):
        world.submit(call(f"{index}" * 60, max_tokens=80, ignore_eos=True, tenant="greedy"))
    for _ in range(10):
        world.step()
    reply = world.submit(call("a" * 100, max_tokens=2, tenant="modest"))
    assert steps_until_done(world, reply) <= 8
    world.drain()


def test_a_tenant_that_holds_no_more_than_its_share_is_not_interrupted(bench, call):
    world = bench(max_running=4)
    first = [world.submit(call(text, max_tokens=30, tenant="one")) for text in "ab"]
    second = [world.submit(call(text, max_tokens=30, tenant="two")) for text in "cdef"]
    world.drain()
    assert world.scheduler.num_retracted == 0
    assert all(reply.error() is None for reply in first + second)


def test_chunks_are_shared_by_weight(bench, call):
    world = bench(Recorder(3_000), num_slots=3_000, context_len=1024, chunk_tokens=80)
    for name, weight in (("a", 3.0), ("b", 1.0)):
        world.submit(call(name * 1000, max_tokens=1, tenant=name, weight=weight))
    world.drain()
    shares = [(it["a"], it["b"]) for it in world.runner.batches]
    both = shares[1:16]
    assert sum(a for a, _ in both) == pytest.approx(3 * sum(b for _, b in both), abs=4 * QUANTUM)
    assert all(a + b == 80 for a, b in both)
    assert shares[20][0] == 0 and shares[20][1] == 80  # what one does not want the other gets


def test_a_tenant_that_fills_the_queue_refuses_nobody_else(bench, call):
    world = bench(max_waiting=3)
    greedy = [world.submit(call(str(index), tenant="greedy")) for index in range(5)]
    assert [isinstance(reply.error(), Overloaded) for reply in greedy] == [False] * 3 + [True] * 2
    assert world.run([call("a", tenant="modest")])[0].text


def test_a_priority_counts_among_the_calls_of_one_tenant_only(bench, call):
    world = bench(max_running=1, context_len=64)
    ended: list[str] = []
    for tenant, priority in (("one", 100), ("one", 100), ("one", 0), ("two", 0), ("one", 50)):
        reply = world.submit(
            call(f"{tenant}{priority}{len(ended)}", max_tokens=1, priority=priority, tenant=tenant)
        )
        reply.when_done(lambda it: ended.append(f"{it.call.tenant} {it.call.priority}"))
    world.drain()
    assert [it for it in ended if it.startswith("one")] == ["one 100", "one 100", "one 50", "one 0"]
    assert ended.index("two 0") <= 1


ONE_TENANT = st.lists(
    st.tuples(
        st.sampled_from(("ab", "abc" * 8, "abd" * 9, "x" * 40, "abc" * 8 + "y" * 30)),
        st.integers(1, 12),
        st.integers(-1, 1),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=14,
)


class Ids(FakeRunner):
    """Remembers the tokens of all batches."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.seen: list[list[int]] = []

    def run(self, batch: Batch) -> Outcome:
        self.seen.append(batch.ids.tolist())
        return super().run(batch)


def served_alone(bench, call, order: str, wanted, **of_tenant) -> list[list[int]]:
    """The tokens of each batch; calls come in between, some after steps."""
    world = bench(Ids(150), num_slots=150, max_running=3, chunk_tokens=24, order=order)
    for text, max_tokens, priority, steps in wanted:
        world.submit(call(text, max_tokens=max_tokens, priority=priority, **of_tenant))
        for _ in range(steps):
            world.step()
    world.drain()
    return world.runner.seen


@given(wanted=ONE_TENANT, order=st.sampled_from(("lpm", "dfs", "fcfs")))
@settings(max_examples=15, deadline=None)
def test_one_tenant_alone_is_served_in_the_order_of_calls_without_tenants(
    bench, call, wanted, order
):
    plain = served_alone(bench, call, order, wanted)
    assert served_alone(bench, call, order, wanted, tenant="one", weight=0.5) == plain


SIZES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=12, max_size=24)


@given(sizes=SIZES, weight=st.sampled_from((1.0, 2.0, 4.0)), overlap=st.booleans())
@settings(max_examples=15, deadline=None)
@example(sizes=[(60, 1)] * 12, weight=4.0, overlap=False)
def test_two_tenants_that_want_the_same_get_tokens_by_weight_and_neither_starves(
    bench, call, sizes, weight, overlap
):
    """Both submit the same calls at once. While both wait, what they got differs from their shares
    by no more than what may be admitted at a time."""
    weights = {"a": weight, "b": 1.0}
    world = bench(num_slots=400, max_running=4, chunk_tokens=32, overlap=overlap)
    got, open_calls = Counter[str](), Counter[str]()
    for index, (size, max_new) in enumerate(sizes):
        for name in weights:
            text = f"{name}{index:03}".ljust(size, "-")
            made = call(text, max_tokens=max_new, tenant=name, weight=weights[name])
            open_calls[name] += 1
            total = max(4, size) + max_new

            def note(reply, name=name, cost=total) -> None:
                got[name] += cost
                open_calls[name] -= 1

            world.submit(made).when_done(note)
    bound = 4 * (60 + 20) + 32
    num_steps = 0
    while min(open_calls.values()) > 4:  # until one runs the last of its own
        world.step()
        num_steps += 1
        assert abs(got["a"] / weight - got["b"]) <= bound * (1 + 1 / weight)
        if num_steps >= 100:
            assert min(got.values()) > 0
    world.drain()


@given(
    weights=st.lists(st.sampled_from((0.01, 0.5, 1.0, 3.0, 100.0)), min_size=2, max_size=4),
    budgets=st.lists(st.integers(1, 300), min_size=1, max_size=30),
)
def test_a_divided_budget_is_spent_whole_and_by_weight(weights, budgets):
    names = {str(index): weight for index, weight in enumerate(weights)}
    share, got = FairShare(), Counter[str]()
    share.update(names)
    for budget in budgets:
        given = share.divide(budget, dict.fromkeys(names, 10**6))
        assert sum(given.values()) == budget
        got.update(given)
    for one, other in zip(names, list(names)[1:], strict=False):
        difference = got[one] / names[one] - got[other] / names[other]
        assert abs(difference) <= QUANTUM / names[one] + QUANTUM / names[other]


def test_time_without_work_gives_no_credit_and_a_debt_is_not_forgotten():
    share = FairShare()
    share.update({"a": 1.0})
    share.charge("a", 1000)
    share.update({"a": 1.0, "b": 1.0})
    assert share.divide(64, {"a": 500, "b": 500}) == {"a": 32, "b": 32}
    share.charge("b", 200)
    share.update({"a": 1.0})  # b leaves with more than its share
    share.update({"a": 1.0, "b": 1.0})
    assert share.divide(96, {"a": 500, "b": 500}) == {"a": 96, "b": 0}


@pytest.mark.parametrize(
    ("field", "value"), [("tenant", 3), ("weight", 0), ("weight", True), ("weight", float("nan"))]
)
def test_what_is_no_tenant_or_weight_is_refused(call, field, value):
    with pytest.raises(InvalidCall, match=field):
        replace(call("a"), **{field: value}).check()
