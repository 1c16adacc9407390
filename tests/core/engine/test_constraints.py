"""Constrained calls through the engine: valid, in time, and the same whatever runs beside them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from forkroot.benchmarks.common.fake_runner import FakeRunner
from forkroot.core.api.protocol import Choices, Grammar, InvalidCall, Regex

from ..conftest import texts

RECORD = r'\{"name":"[a-z]{1,8}","age":[1-9][0-9]?\}'
PATTERNS = [r"\d{3}-\d{4}", r"(ab|cd)*e", RECORD, r"日本(語|人)+"]


def calls(call):
    return [
        call(f"{pattern} {index}", constraint=Regex(pattern), **sampling)
        for pattern in PATTERNS
        for index, sampling in enumerate(
            (
                {"max_tokens": 40},
                {"max_tokens": 40, "temperature": 1.0, "seed": 3, "n": 2, "stream": True},
                {"max_tokens": 34, "temperature": 2.0, "seed": 4, "ignore_eos": True},
            )
        )
    ]


def test_every_answer_matches_its_pattern_and_ends_within_its_budget(constrained, call):
    requests = calls(call)
    for request, result in zip(requests, constrained().run(requests), strict=True):
        for output in result.outputs:
            assert re.fullmatch(request.constraint.pattern, output.text)
            assert output.finish_reason == "stop"
            assert len(output.ids) <= request.sampling.max_tokens


@pytest.mark.parametrize(
    "settings",
    [
        {"cache": False},
        {"chunk_tokens": 7},
        {"max_running": 1},
        {"retract_every": 2},
        {"num_slots": 120},
        {"jumps": False},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_runs_beside_does_not_change_a_constrained_answer(constrained, call, settings):
    assert texts(constrained(**settings).run(calls(call))) == texts(constrained().run(calls(call)))


def test_choices_give_one_of_the_options(constrained, call):
    options = ("red", "green", "greenish")
    constraint = Choices(options)
    requests = [
        call("colour", constraint=constraint, temperature=1.0, seed=seed, max_tokens=12)
        for seed in range(20)
    ]
    found = {result.outputs[0].text for result in constrained().run(requests)}
    assert found <= set(options)
    assert len(found) > 1


def test_a_budget_below_the_shortest_answer_is_refused_with_both_numbers(constrained, call):
    (error,) = constrained().run([call("x", constraint=Regex("a{9}"), max_tokens=8)])
    assert isinstance(error, InvalidCall)
    assert (error.field, error.value) == ("max_tokens", 8)
    assert ">= 9" in error.allowed


def test_min_tokens_do_not_break_a_pattern(constrained, call):
    requests = call("x", constraint=Regex("ab?"), min_tokens=6, max_tokens=9)
    (result,) = constrained().run([requests])
    assert re.fullmatch("ab?", result.outputs[0].text)


def test_a_bad_pattern_is_refused_and_harms_no_other_call(constrained, call):
    bad, good = constrained().run([call("x", constraint=Regex("(a")), call("x", max_tokens=2)])
    assert isinstance(bad, InvalidCall)
    assert bad.field == "regex"
    assert len(good.outputs[0].ids) == 2


def test_a_bad_grammar_is_refused_and_harms_no_other_call(constrained, call):
    bad, good = constrained().run(
        [call("x", constraint=Grammar("start: (")), call("x", max_tokens=2)]
    )
    assert isinstance(bad, InvalidCall)
    assert bad.field == "grammar"
    assert len(good.outputs[0].ids) == 2


def test_a_burst_of_equal_patterns_compiles_once(constrained, call):
    made = constrained()
    made.run([call(f"x{index}", constraint=Regex("[0-9]+")) for index in range(30)])
    assert made.constraints.guides.num_compiled == 1


def test_a_runner_that_samples_a_forbidden_token_fails_that_call_only(constrained, call):
    class Deaf(FakeRunner):
        def run(self, batch):
            outcome = super().run(batch)
            held = [draw.mask is not None for draw in batch.sampling_params]
            outcome.tokens[held] = ord("?")
            return outcome

    bad, good = constrained(runner=Deaf(600)).run(
        [call("x", constraint=Regex("a+")), call("x", max_tokens=2)]
    )
    assert "not allowed by the constraint" in str(bad)
    assert len(good.outputs[0].ids) == 2


@pytest.mark.parametrize("jumps", [True, False])
def test_forced_text_is_marked(constrained, call, jumps):
    made = constrained(jumps=jumps)
    (found,) = made.run([call("x", constraint=Regex("日本(語|人)=[ab]c"), max_tokens=40)])
    (output,) = found.outputs
    assert [output.text[start:end] for start, end in output.forced] == ["日本", "=", "c"]
    assert made.engine.counters.forced_tokens == (10 if jumps else 0)


def test_a_stop_within_forced_text_does_not_cut_it(constrained, call):
    request = call("x", constraint=Regex("[ab]cdef"), max_tokens=40, stop=("de",))
    (output,) = constrained().run([request])[0].outputs
    assert output.text[1:] == "cdef"
    assert output.forced == ((1, 5),)


class Weighing(FakeRunner):
    """Draws by hash, as its parent does, and says that a mask allows a known share."""

    def run(self, batch):
        outcome = super().run(batch)
        shares = [-1.0 if draw.log_mass else 0.0 for draw in batch.sampling_params]
        return replace(outcome, log_masses=np.array(shares, np.float32))


@pytest.mark.parametrize("retract_every", [0, 3])
def test_log_mass_is_a_sum_over_all_tokens_also_forced_ones(constrained, call, retract_every):
    made = constrained(runner=Weighing(600), retract_every=retract_every)
    weighed = call("x", constraint=Regex("[ab]cde{2}"), max_tokens=40, log_mass=True, n=2)
    free = call("y", max_tokens=4, log_mass=True)
    plain = call("z", constraint=Regex("[ab]cde{2}"), max_tokens=40)
    first, second, third = made.run([weighed, free, plain])
    assert [output.log_mass for output in first.outputs] == [-5.0, -5.0]
    assert [output.log_mass for output in (*second.outputs, *third.outputs)] == [0.0, None]
    assert made.engine.counters.forced_tokens == 4


@pytest.mark.parametrize("stop", ["1", ":", '"', "a", "}", '{"name'])
@pytest.mark.parametrize("jumps", [True, False])
def test_a_stop_never_leaves_an_invalid_answer(constrained, call, stop, jumps):
    requests = [
        call(f"go {seed}", constraint=Regex(RECORD), stop=(stop,), max_tokens=40, stream=True)
        for seed in range(4)
    ]
    for result in constrained(jumps=jumps).run(requests):
        assert re.fullmatch(RECORD, result.outputs[0].text)


def test_a_stop_ends_an_answer_that_is_whole_before_it(constrained, call):
    requests = call("go", constraint=Regex(r"([a-z]{2};)*[a-z]{2}"), stop=(";",), max_tokens=60)
    (result,) = constrained().run([requests])
    assert re.fullmatch("[a-z]{2}", result.outputs[0].text)


def test_forced_text_does_not_count_as_cached_prompt(constrained, call):
    requests = call("go", constraint=Regex('{"a long name that is forced":[0-9]}'), max_tokens=60)
    bench = constrained()
    bench.run([requests])
    (result,) = bench.run([requests])
    assert 0 < result.usage.cached_tokens <= result.usage.prompt_tokens
