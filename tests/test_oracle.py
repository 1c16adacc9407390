"""The benchmarks' offline optimum, and their exact hints."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pytest

from forkroot.benchmarks.cache.exact import Hinted, ProgramLog
from forkroot.benchmarks.cache.knowledge import measure
from forkroot.benchmarks.cache.oracle import End, Start, offline_hits
from forkroot.benchmarks.cache.virtual import VirtualRuntime
from forkroot.benchmarks.common import workloads
from forkroot.benchmarks.common.programs import Driver, Maker
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.api.reply import Mailbox
from forkroot.core.engine.sequence import Job, Sequence, StopRules


def sequence(*ids: int) -> Sequence:
    """One that generates nothing."""
    job = Job(Call((Tokens(ids),), Sampling(max_tokens=0)), None)  # type: ignore[arg-type]
    rules = StopRules(frozenset(), (), 0, 0)
    return Sequence(job, 0, np.array(ids, np.int32), len(ids), len(ids), rules, 0)


def in_turn(prompts: list[tuple[int, ...]]) -> list[Start | End]:
    """One at a time, each whole."""
    events: list[Start | End] = []
    for prompt in prompts:
        one = sequence(*prompt)
        events += [Start(one, len(prompt), len(prompt)), End(one, len(prompt))]
    return events


def fewest(prompts: list[tuple[int, ...]], capacity: int) -> int:
    """The fewest tokens computed, by trying every set of prefixes that may stay."""

    @lru_cache(None)
    def cost(index: int, cached: frozenset[tuple[int, ...]]) -> int:
        if index == len(prompts):
            return 0
        path = {prompts[index][:end] for end in range(1, len(prompts[index]) + 1)}
        found = cached | path
        best = None
        for kept in _kept(found, frozenset(path), capacity):
            rest = cost(index + 1, kept)
            best = rest if best is None else min(best, rest)
        assert best is not None
        return best + len(path - cached)

    return cost(0, frozenset())


def _kept(found, path, capacity):
    """Every set that is left where leaves go, not of the path, until the rest fits."""
    if len(found) <= capacity:
        return {frozenset(found)}
    inner = {it[:-1] for it in found}
    leaves = [it for it in found if it not in inner and it not in path]
    return {kept for leaf in leaves for kept in _kept(found - {leaf}, path, capacity)}


@pytest.mark.parametrize("seed", range(20))
def test_the_oracle_computes_as_few_tokens_as_any_order_of_evictions(seed):
    rng = random.Random(seed)
    prompts = [tuple(rng.choices((1, 2), k=rng.randint(1, 4))) for _ in range(7)]
    for capacity in (4, 6):
        assert offline_hits(in_turn(prompts), capacity)[0] == fewest(prompts, capacity)


def test_the_oracle_keeps_what_is_used_again_soonest():
    prompts = [(1, 2), (3, 4), (5, 6), (1, 2), (3, 4)]
    computed, found = offline_hits(in_turn(prompts), 4)
    assert (computed, found) == (8, 2)  # the last use of LRU would find nothing


def test_exact_hints_say_what_is_left_of_each_program():
    workload = workloads.chat(Maker(range(256, 32_000), 0.2, 0))
    log = ProgramLog()
    runtime = VirtualRuntime(EngineConfig(), 100_000)
    Driver(runtime.submit, runtime.tick).run(log.watch(workload.programs(False)), 4)
    calls: list[Call] = []
    runtime = VirtualRuntime(EngineConfig(), 100_000)

    def submit(call: Call) -> Mailbox:
        calls.append(call)
        return runtime.submit(call)

    Driver(submit, runtime.tick).run(Hinted(log).wrap(workload.programs(False)), 1)
    first = [call.hint for call in calls[:4]]
    assert [hint.calls_left for hint in first] == [3, 2, 1, 0]
    assert [hint.next_use for hint in first] == [1, 1, 1, 0]
    later = [call.sampling.max_tokens for call in calls[1:4]]
    assert [hint.tokens_left for hint in first] == [sum(later), sum(later[1:]), later[2], 0]
    assert {hint.program for hint in first} == {"program 0"}


@pytest.mark.parametrize("shape", [workloads.multi_chain, workloads.generative_agents])
def test_answers_are_the_same_whatever_is_known_and_no_run_beats_the_oracle(shape):
    row = measure(shape, 0.1, 0.1, EngineConfig())
    for name in ("lru", "no hints", "exact hints"):
        assert 0 < row[name]["of_oracle"] <= 1
