"""Tokens that leave the pool come back from the host, and no answer changes."""

from __future__ import annotations

import numpy as np
import pytest

from forkroot.core.api.protocol import Call, Completion, InvalidCall, Sampling, Text

from ..conftest import Bench

POLICIES = ("back", "through")


def calls(count: int, seed: int) -> list[Call]:
    """Prompts of a few long roots and short tails, in no order."""
    rng = np.random.default_rng(seed)
    roots = ["".join(rng.choice(list("abcdef"), 60)) for _ in range(8)]
    prompts = [roots[rng.integers(8)] + "".join(rng.choice(list("xyz"), 9)) for _ in range(count)]
    return [Call((Text(prompt),), Sampling(max_tokens=6, temperature=0.0)) for prompt in prompts]


def answers(waves: list[list[Call]], **settings: object) -> tuple[list[str], int]:
    """The answers to calls that come in waves, and how many prompt tokens were cached."""
    bench = Bench(**settings)
    found = [done for wave in waves for done in bench.run(wave)]
    completions = [it for it in found if isinstance(it, Completion)]
    assert len(completions) == len(found)
    return [it.text for it in completions], sum(it.usage.cached_tokens for it in completions)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("retract_every", [0, 3])
def test_answers_and_hits_are_those_of_an_unlimited_pool(policy, retract_every) -> None:
    waves = [calls(8, seed) for seed in (1, 1, 2)]
    wanted, most = answers(waves, num_slots=6000)
    alone, fewer = answers(waves, num_slots=170)
    small = {"num_slots": 170, "host_slots": 4000, "host_policy": policy}
    found, cached = answers(waves, retract_every=retract_every, **small)
    assert found == wanted == alone
    assert fewer < 0.8 * most
    if not retract_every:
        assert cached >= 0.95 * most


@pytest.mark.parametrize("host_slots", [1, 40, 100])
def test_a_host_that_holds_little_changes_no_answer(host_slots) -> None:
    waves = [calls(8, seed) for seed in (1, 2)]
    wanted, _ = answers(waves, num_slots=6000)
    found, _ = answers(waves, num_slots=170, host_slots=host_slots)
    assert found == wanted


def test_settings_of_the_host_are_checked() -> None:
    for name, value in (("host_slots", -1), ("host_policy", "often"), ("host_file", 3)):
        with pytest.raises(InvalidCall, match=name):
            Bench(**{name: value})


def test_the_next_in_turn_is_fetched_while_others_run() -> None:
    bench = Bench(num_slots=400, host_slots=4000, max_running=1)
    root = "".join(np.random.default_rng(5).choice(list("abc"), 60))
    greedy = Sampling(max_tokens=6, temperature=0.0)
    for text in (root, "x" * 200, "y" * 180):  # the root has to leave
        bench.run([Call((Text(text),), greedy)])
    bench.cache.free(bench.cache.allocate(150))
    host = bench.cache.host
    assert host is not None
    before = host.num_loaded
    first = bench.submit(
        Call((Text("z" * 40),), Sampling(max_tokens=20, temperature=0.0), priority=5)
    )
    second = bench.submit(Call((Text(root + "?"),), greedy))
    bench.step()
    assert host.num_loaded - before >= 60 and not first.done()
    bench.drain()
    assert second.result(0).usage.cached_tokens >= 60
