"""The order in which calls are served: Theorem 3.1 of the paper, and that nobody starves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.core.api.protocol import Call, ForkHint, Sampling, Tokens

PLANT = Sampling(max_tokens=0)


def trie_tokens(prompts: list[tuple[int, ...]]) -> int:
    """Tokens of all edges of the radix tree of these prompts: the least that must be computed."""
    return len({prompt[:end] for prompt in prompts for end in range(1, len(prompt) + 1)})


def num_repeated(served: list[tuple[int, ...]]) -> int:
    """Prompts that one served before them covers whole."""
    return sum(
        any(earlier[: len(prompt)] == prompt for earlier in served[:place])
        for place, prompt in enumerate(served)
    )


@st.composite
def request_trees(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Prompts that share prefixes: each is an earlier one's beginning and something new."""
    prompts = [tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=6)))]
    for _ in range(draw(st.integers(1, 24))):
        stem = draw(st.sampled_from(prompts))
        stem = stem[: draw(st.integers(0, len(stem)))]
        prompts.append((*stem, *draw(st.lists(st.integers(0, 2), min_size=1, max_size=8))))
    return prompts


def offline(bench, prompts, order, sampling, **sizes):
    """Serve all prompts, which wait before the first step, one after another; the cache holds the
    longest and not a token more. Returns the prompts as they were served, and the bench."""
    served = []
    longest = max(map(len, prompts))
    world = bench(
        num_slots=longest,
        max_running=1,
        chunk_tokens=1000,
        order=order,
        hold_min=1,
        **sizes,
    )
    for prompt in prompts:
        reply = world.submit(Call((Tokens(prompt),), sampling))
        reply.when_done(lambda reply: served.append(reply.call.prompt[0].ids))
    world.drain()
    assert sorted(served) == sorted(prompts)
    return served, world


@pytest.mark.parametrize("order", ["lpm", "dfs"])
@given(prompts=request_trees(), ageing=st.sampled_from((1, 16, 500)))
@settings(max_examples=60)
def test_offline_each_edge_of_the_request_tree_is_computed_once(bench, order, prompts, ageing):
    _, world = offline(bench, prompts, order, PLANT, ageing=ageing)
    assert world.runner.num_computed == trie_tokens(prompts)
    assert world.engine.counters.computed_tokens == trie_tokens(prompts)
    assert world.engine.counters.cached_tokens == sum(map(len, prompts)) - trie_tokens(prompts)


@pytest.mark.parametrize("order", ["lpm", "dfs"])
@given(prompts=request_trees())
@settings(max_examples=40)
def test_a_prompt_that_is_cached_whole_costs_one_token_more_to_be_continued(bench, order, prompts):
    served, world = offline(bench, prompts, order, Sampling(max_tokens=1, temperature=0))
    assert world.runner.num_computed == trie_tokens(prompts) + num_repeated(served)


def test_other_orders_compute_a_shared_prefix_again(bench):
    prompts = [(1, 1, 1, 2), (5, 5, 5, 6), (1, 1, 1, 3), (5, 5, 5, 7)]
    cost = {}
    for order in ("lpm", "dfs", "fcfs"):
        cost[order] = offline(bench, prompts, order, PLANT)[1].runner.num_computed
    assert cost == {"lpm": 10, "dfs": 10, "fcfs": 16}


def test_a_random_order_is_the_same_for_the_same_seed_and_no_optimum(bench):
    prompts = [(first, first, first, last) for last in range(6) for first in range(6)]
    costs = {offline(bench, prompts, "random", PLANT)[1].runner.num_computed for _ in range(2)}
    assert len(costs) == 1
    assert costs.pop() > trie_tokens(prompts)


def test_first_come_first_served_is_what_it_says(bench):
    prompts = [(7, 8), (1, 2, 3), (7, 8, 9), (1, 2)]
    assert offline(bench, prompts, "fcfs", PLANT)[0] == prompts


@pytest.mark.parametrize("order", ["lpm", "dfs", "fcfs", "random"])
def test_a_higher_priority_is_served_first(bench, call, order):
    world = bench(order=order, max_running=1)
    served = []
    for priority in (0, 5, -5, 5, 100):
        reply = world.submit(call(f"call of {priority}", priority=priority))
        reply.when_done(lambda reply: served.append(reply.call.priority))
    world.drain()
    assert served == [100, 5, 5, 0, -5]


def test_a_prefilled_root_goes_before_its_branches_and_after_earlier_calls(bench, call):
    world = bench(max_running=1)
    served = []
    calls = [
        call("one"),
        call("two"),
        call("a root", max_tokens=0, hint=ForkHint("root")),
        call("a root, and its branch", hint=ForkHint("root")),
        call("urgent", priority=2),
    ]
    for one in calls:
        world.submit(one).when_done(lambda reply: served.append(calls.index(reply.call)))
    world.drain()
    assert served == [4, 0, 1, 2, 3]


def adversary(call) -> Iterator[Call]:
    """Calls, without end, that share much with one another, every third a planted root."""
    number = 0
    while True:
        number += 1
        text = "the same long beginning of everything that comes, again and again: "
        yield call(text + str(number), max_tokens=2)
        yield call(text * 2 + str(number), max_tokens=1)
        yield call(text * 3 + str(number), max_tokens=0, hint=ForkHint(f"root {number}"))


@pytest.mark.parametrize("order", ["lpm", "dfs", "fcfs", "random"])
@pytest.mark.parametrize("max_running", [1, 4])
def test_a_cold_call_is_served_however_many_better_ones_keep_coming(
    bench, call, order, max_running
):
    """The bound: at most `bound` admissions, and then those that wait when these have been made."""
    world = bench(order=order, max_running=max_running, ageing=16, root_timeout=1.0)
    stream = adversary(call)
    queue, started = world.queue, world.engine.counters
    for _ in range(12):
        world.submit(next(stream))
    world.step()
    cold = world.submit(call("something else", max_tokens=1))
    admitted_before, allowed = num_admitted(world), None
    for _ in range(2000):
        while len(queue) < 12:
            world.submit(next(stream))
        world.step()
        world.now += 0.01
        if cold.done():
            break
        seen = num_admitted(world) - admitted_before
        if seen >= queue.bound and allowed is None:
            allowed = seen + len(queue)
        assert allowed is None or seen <= allowed
    assert cold.done()
    assert queue.bound == 16
    assert started.calls > 12
    world.drain()


def num_admitted(world) -> int:
    """Calls (of one sequence each) that run or have run."""
    return sum(job.sequences[0].cached_len is not None for job in world.jobs.values())
