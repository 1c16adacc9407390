"""Overlap: what is prepared while the device is late changes the time and never an answer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forkroot.benchmarks.common.fake_runner import FakeRunner, LateRunner
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import (
    BackendClosed,
    Call,
    CallFailed,
    Choices,
    Completion,
    DeadlineExceeded,
    ForkHint,
    InvalidCall,
    JsonSchema,
    Regex,
    Sampling,
    Text,
    Tokens,
)

from ..conftest import Bench, make_call

STEMS = ("", "You are a judge. ", "You are a judge. Essay: the sea is wide and deep. ", "Q: ")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"enum": [7, 77, 42]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CONSTRAINTS = (
    Regex("[0-9]{3}-[0-9]{4}"),
    Regex("(ab|ac)* forced (x|y) forced"),
    Choices(("red", "green", "greenish")),
    JsonSchema(SCHEMA),
)


class Minding(FakeRunner):
    """What it draws depends on all that penalties ask for, unless a constraint says more."""

    def run(self, batch: Batch) -> Outcome:
        outcome = super().run(batch)
        for row, draw in enumerate(batch.sampling_params):
            for tokens in (draw.generated, draw.prompt):
                if tokens is not None and draw.mask is None and outcome.tokens[row] >= 0:
                    outcome.tokens[row] = (outcome.tokens[row] + tokens.sum()) % 250
        return outcome


def make_bench(overlap: bool, runner: type[FakeRunner] = Minding, **settings: Any) -> Bench:
    size, num_host = settings.setdefault("num_slots", 2000), settings.get("host_slots", 0)
    bench = Bench(runner(size, 257, num_host=num_host), overlap=overlap, **settings)
    bench.pending_calls.constraints = bench.constraints
    return bench


def some_sampling(rng: random.Random) -> Sampling:
    most = rng.randint(1, 14)
    return Sampling(
        max_tokens=most,
        min_tokens=rng.choice((0, 0, most // 2)),
        temperature=rng.choice((0.0, 1.0)),
        seed=rng.randint(0, 5),
        n=rng.choice((1, 1, 1, 3)),
        logprobs=rng.choice((None, None, None, 2)),
        stop=tuple(rng.sample("abcdefghij#+", rng.choice((0, 0, 6)))),
        stop_token_ids=tuple(range(0, 60)) if rng.random() < 0.3 else (),
        frequency_penalty=rng.choice((0.0, 0.0, 0.5)),
        repetition_penalty=rng.choice((1.0, 1.0, 1.5)),
    )


def some_call(rng: random.Random) -> Call:
    text = rng.choice(STEMS) + "".join(rng.choices("ab", k=rng.randint(1, 12)))
    hint = (
        ForkHint(rng.choice(("root", "other")), rng.choice((None, 3)))
        if rng.random() < 0.3
        else None
    )
    call = Call((Text(text),), hint=hint, namespace=rng.choice(("", "", "tenant")))
    kind = rng.choice(
        (
            *("answer", "answer", "answer", "constrained", "constrained", "plant"),
            *("options", "exact", "scored", "scored", "scored"),
        )
    )
    if kind == "plant":
        return replace(call, sampling=Sampling(max_tokens=0))
    if kind == "options":
        return replace(call, options=("ab", "abc", "b", "a")[: rng.randint(1, 4)])
    if kind == "exact":
        options = tuple(rng.sample(("ab", "abc", "b", "red"), rng.randint(1, 4)))
        return replace(call, options=options, scoring=rng.choice(("exact", "canonical")))
    call = replace(call, sampling=some_sampling(rng), stream=rng.random() < 0.5)
    if kind == "scored":
        sampling = replace(call.sampling, logprobs=rng.choice((None, 0, 1, 3)))
        sampling = replace(sampling, max_tokens=0, min_tokens=0) if rng.random() < 0.3 else sampling
        call = replace(call, sampling=sampling, scored_from=rng.choice((0, 1, rng.randint(1, 60))))
    if kind == "constrained":
        sampling = replace(call.sampling, max_tokens=rng.randint(36, 50), min_tokens=0)
        call = replace(call, sampling=sampling, constraint=rng.choice(CONSTRAINTS))
    return call


def some_settings(rng: random.Random) -> dict[str, Any]:
    settings = {
        "cache": rng.random() < 0.8,
        "chunk_tokens": rng.choice((5, 64, 1000)),
        "max_running": rng.choice((2, 8, 32)),
        "num_slots": rng.choice((130, 180, 2000)),
        "retract_every": rng.choice((0, 0, 0, 1, 3)),
        "jumps": rng.random() < 0.7,
        "host_slots": rng.choice((0, 0, 400)),
        "host_policy": rng.choice(("back", "through")),
        "logprob_bytes": rng.choice((0, 3000, 1 << 20, 1 << 20)),
    }
    if settings["retract_every"] and not settings["cache"]:
        settings["chunk_tokens"] = 1000  # else all chunks are lost
    return settings


def result_of(completion: Completion) -> Completion:
    """All but how much was cached."""
    assert isinstance(completion, Completion)
    return replace(completion, usage=replace(completion.usage, cached_tokens=0, root_tokens=0))


def alone(call: Call, runner: type[FakeRunner] = Minding) -> Completion:
    """What a call gets by itself, without overlap, cache or chunks."""
    sizes = {"max_running": 8, "cache": False, "chunk_tokens": 1000}
    return make_bench(False, runner, **sizes).run([call])[0]


def check_chunks(reply: Any) -> None:
    for index, output in enumerate(reply.result().outputs):
        chunks = [chunk for chunk in reply if chunk.index == index]
        assert not chunks or "".join(chunk.text for chunk in chunks) == output.text
        assert not chunks or sum((chunk.ids for chunk in chunks), ()) == output.ids


@pytest.mark.parametrize("seed", range(30))
def test_any_traffic_gets_the_answers_that_each_call_gets_by_itself(seed):
    rng = random.Random(seed)
    world = make_bench(True, **some_settings(rng))
    replies = []
    for _ in range(rng.randint(1, 9)):
        replies.append(world.submit(some_call(rng)))
        for _ in range(rng.choice((0, 0, 1, 2, 5))):
            world.step()
    world.drain()
    for reply in replies:
        assert result_of(reply.result()) == result_of(alone(reply.call))
        check_chunks(reply)
    world.now += 1000
    world.engine.expire_roots()
    world.engine.check()
    assert world.cache.num_locked == 0 and not world.engine.has_work


@pytest.mark.parametrize("seed", range(30))
def test_a_call_that_is_cancelled_or_late_at_any_time_leaves_the_others_alone(seed):
    rng = random.Random(1000 + seed)
    world = make_bench(True, **some_settings(rng))
    doomed = []
    replies = []
    for _ in range(9):
        call = some_call(rng)
        if rng.random() < 0.2:
            call = replace(call, deadline=rng.randint(1, 6))
        replies.append(world.submit(call))
        for _ in range(rng.randint(0, 3)):
            world.now += 1
            world.step()
        if rng.random() < 0.5:
            doomed.append(rng.choice(replies))
            world.cancel(doomed[-1])
    world.drain()
    for reply in replies:
        wanted = alone(replace(reply.call, deadline=None))
        if isinstance(reply.error(), DeadlineExceeded):
            assert reply.call.deadline is not None
        elif any(output.finish_reason == "abort" for output in reply.result().outputs):
            assert reply in doomed
            for output, whole in zip(reply.result().outputs, wanted.outputs, strict=True):
                assert whole.text.startswith(output.text.rstrip("\N{REPLACEMENT CHARACTER}"))
        elif reply not in doomed or reply.result().outputs:
            assert result_of(reply.result()) == result_of(wanted)


@pytest.mark.parametrize("fails_at", ["launch", "sample", "result"])
@pytest.mark.parametrize("seed", range(8))
def test_a_device_that_fails_on_a_call_fails_that_call_only(seed, fails_at):
    rng = random.Random(2000 + seed)
    settings = some_settings(rng)
    bad, size = 255, 250  # no token that is drawn
    runner = Minding(settings["num_slots"], size, bad, num_host=settings["host_slots"])
    world = Bench(LateRunner(runner, bad, fails_at), overlap=True, **settings)
    world.pending_calls.constraints = world.constraints
    replies = []
    for index in range(8):
        call = some_call(rng)
        if index % 3 == 1:
            call = replace(call, prompt=(*call.prompt, Tokens((bad, 97, bad)[: 1 + index % 2 * 2])))
        replies.append(world.submit(call))
        for _ in range(rng.randint(0, 2)):
            world.step()
    world.drain()
    for index, reply in enumerate(replies):
        if index % 3 == 1:
            assert isinstance(reply.error(), CallFailed)
        else:
            wanted = Bench(Minding(2000, size), num_slots=2000)
            wanted.pending_calls.constraints = wanted.constraints
            assert result_of(reply.result()) == result_of(wanted.run([reply.call])[0])


# --- one case each -------------------------------------------------------------------------------


def test_every_decode_step_is_launched_before_the_previous_one_is_read():
    world = make_bench(True)
    (answer,) = world.run([make_call("a prompt", max_tokens=20)])
    assert len(answer.outputs[0].ids) == 20
    assert world.runner.runner.num_runs == 20
    assert world.runner.num_ahead == 19
    assert world.runner.num_unoverlapped == 1  # the last


def test_a_constrained_answer_overlaps_as_well_and_jumps():
    calls = [make_call("x", constraint=Regex("[0-9]{3} forced [0-9]{3}"), max_tokens=40)]
    world, plain = make_bench(True), make_bench(False)
    assert result_of(world.run(calls)[0]) == result_of(plain.run(calls)[0])
    assert world.engine.counters.forced_tokens == plain.engine.counters.forced_tokens >= 7
    assert world.runner.num_ahead == world.runner.runner.num_runs - 1 >= 6
    assert world.runner.num_unoverlapped == 1  # the last


def test_a_token_that_does_not_fit_is_resampled_and_the_token_in_flight_after_it_is_dropped():
    tree = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "children": {"type": "array", "items": {"$ref": "#"}},
        },
        "required": ["name", "children"],
        "additionalProperties": False,
    }
    calls = [
        make_call(f"{seed}", constraint=JsonSchema(tree), max_tokens=60, temperature=1.0, seed=seed)
        for seed in range(8)
    ]
    world, plain = make_bench(True), make_bench(False)
    assert [result_of(one) for one in world.run(calls)] == [
        result_of(one) for one in plain.run(calls)
    ]
    assert (
        plain.engine.counters.sampled_tokens
        > sum(len(one.outputs[0].ids) for one in map(alone, calls))
        - plain.engine.counters.forced_tokens
    )  # some were drawn again


def test_what_ends_at_its_length_computes_nothing_in_vain():
    calls = [make_call(f"{index} prompt", max_tokens=1 + index) for index in range(6)]
    world, plain = make_bench(True), make_bench(False)
    assert [result_of(one) for one in world.run(calls)] == [
        result_of(one) for one in plain.run(calls)
    ]
    assert world.runner.runner.num_computed == plain.runner.num_computed


def test_a_stop_is_found_while_the_next_token_is_in_flight():
    plain = alone(make_call("prompt", max_tokens=9))
    stop = plain.outputs[0].ids[3]
    call = make_call("prompt", max_tokens=9, stop_token_ids=(stop,))
    world, beside = make_bench(True), make_call("another prompt", max_tokens=12)
    replies = [world.submit(call), world.submit(beside)]
    world.drain()
    assert replies[0].result().outputs[0].ids == plain.outputs[0].ids[:4]
    assert result_of(replies[1].result()) == result_of(alone(beside))
    assert world.engine.counters.sampled_tokens == 16


def test_a_cancelled_call_ends_at_once_and_its_token_in_flight_is_dropped():
    world, call = make_bench(True), make_call("prompt", max_tokens=50)
    reply = world.submit(call)
    for _ in range(4):
        world.step()
    world.cancel(reply)
    assert reply.done() and reply.result().outputs[0].finish_reason == "abort"
    assert len(reply.result().outputs[0].ids) == 3
    assert not world.scheduler.running and world.engine.has_work
    later = world.submit(call)
    world.drain()
    assert result_of(later.result()) == result_of(alone(call))
    assert not world.engine.has_work


def test_when_memory_is_short_the_batch_in_flight_is_awaited_before_a_retraction():
    calls = [make_call(f"{index} has a prompt", max_tokens=30) for index in range(8)]
    world = make_bench(True, num_slots=110)
    answers = world.run(calls)
    assert world.scheduler.num_retracted > 0
    assert [result_of(one) for one in answers] == [result_of(alone(call)) for call in calls]


@pytest.mark.parametrize("max_tokens", [1, 2, 9])
def test_a_row_that_is_not_finite_harms_no_other_row(max_tokens):
    runner = FakeRunner(600, 257, broken_on=ord("B"))
    calls = [make_call(text, max_tokens=max_tokens) for text in ("one", "B", "two")]
    one, bad, two = Bench(runner, overlap=True).run(calls)
    assert isinstance(bad, CallFailed) and "not finite" in str(bad)
    assert result_of(one) == result_of(alone(calls[0], FakeRunner))
    assert result_of(two) == result_of(alone(calls[2], FakeRunner))


def test_a_runner_that_is_gone_ends_the_engine():
    class Gone(FakeRunner):
        def run(self, batch: Batch) -> Outcome:
            raise BackendClosed("gone")

    world = make_bench(True, Gone)
    world.submit(make_call("prompt"))
    with pytest.raises(BackendClosed, match="gone"):
        world.drain()


def test_a_runner_that_cannot_launch_is_waited_for():
    class Plain:
        def __init__(self) -> None:
            self.runner = FakeRunner(600)

        def run(self, batch: Batch) -> Outcome:
            return self.runner.run(batch)

    call = make_call("prompt")
    assert result_of(Bench(Plain(), overlap=True).run([call])[0]) == result_of(
        Bench().run([call])[0]
    )


def test_a_late_device_asserts_the_contract_of_a_launcher():
    world, seen = make_bench(False), []

    class Seeing(FakeRunner):
        def run(self, batch: Batch) -> Outcome:
            seen.append(replace(batch, table=batch.table.copy()))
            return super().run(batch)

    make_bench(False, Seeing).run([make_call("prompt", max_tokens=2)])
    first, second = seen
    device = LateRunner(FakeRunner(2000))
    referring = replace(second, ids=np.array([-1]), sampling_params=())
    with pytest.raises(AssertionError, match="refers to samples before"):
        device.launch(referring)
    launched = device.launch(replace(first, sampling_params=()))
    with pytest.raises(AssertionError, match="before sample"):
        launched.result()
    launched.sample(first.sampling_params)
    with pytest.raises(AssertionError, match="refers to a sample that does not exist"):
        device.launch(replace(referring, ids=np.array([-2])))
    behind = device.launch(referring)
    with pytest.raises(AssertionError, match="in flight already"):
        device.launch(second)
    behind.sample(second.sampling_params)
    with pytest.raises(AssertionError, match="out of order"):
        behind.result()
    assert not world.engine.has_work


def test_overlap_is_on_by_itself_where_a_device_computes_beside_the_cpu():
    assert not EngineConfig().has_overlap
    assert EngineConfig(device="cuda:1").has_overlap
    assert EngineConfig(overlap=True).has_overlap
    assert not EngineConfig(device="cuda", overlap=False).has_overlap
    for value in (1, "on", None):
        with pytest.raises(InvalidCall, match="overlap"):
            EngineConfig.from_settings({"overlap": value})
