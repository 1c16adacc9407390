"""The promises of the engine, over a runner whose tokens depend on every token before them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.benchmarks.common.fake_runner import FakeRunner, byte_tokenizer
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import (
    Call,
    CallFailed,
    CallTooLarge,
    Completion,
    DeadlineExceeded,
    ForkHint,
    ForkrootError,
    InvalidCall,
    Overloaded,
    Regex,
    Sampling,
    Text,
    Tokens,
    Usage,
)
from forkroot.core.engine.engine import Engine
from forkroot.core.engine.output import OutputProcessor
from forkroot.core.fsm.constraints import Constraints

NUM_TOKENS = 12  # a small vocabulary, so that stops are met
FAILS, BROKEN = "F", "B"
PATTERNS = ("[0-9]{3}-[0-9]{4}", "(\\x01\\x02|\\x03)*ab", "forced (a|b) forced")
STEMS = ("", "You are a judge. ", "You are a judge. Essay: the sea is wide and deep. ", "Q: ")
NO_USAGE = Usage()


@st.composite
def hints(draw: st.DrawFn) -> ForkHint | None:
    """Right, wrong and missing ones: two names for everything."""
    if draw(st.booleans()):
        return None
    root = draw(st.sampled_from(("root", "other")))
    return ForkHint(
        root, draw(st.none() | st.integers(-1, 5)), draw(st.none() | st.integers(-2, 4))
    )


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    max_tokens = draw(st.integers(1, 12))
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=draw(st.integers(0, max_tokens)),
        temperature=draw(st.sampled_from((0.0, 1.0))),
        seed=draw(st.integers(0, 5)),
        n=draw(st.sampled_from((1, 1, 2, 5))),
        logprobs=draw(st.sampled_from((None, None, 0, 2))),
        stop=tuple(draw(st.lists(st.text("\1\2\3", min_size=1, max_size=2), max_size=2))),
        stop_token_ids=tuple(draw(st.lists(st.integers(0, NUM_TOKENS), max_size=1))),
    )


@st.composite
def calls(draw: st.DrawFn) -> Call:
    text = draw(st.sampled_from(STEMS)) + draw(st.text("ab", min_size=1, max_size=12))
    call = Call(
        prompt=tuple(Text(piece) for piece in (text[:7], text[7:]) if piece),
        hint=draw(hints()),
        namespace=draw(st.sampled_from(("", "", "tenant"))),
        priority=draw(st.sampled_from((0, 0, 0, 3, -3))),
    )
    kinds = "answers", "answers", "constrained", "plant", "options", "scored"
    kind = draw(st.sampled_from(kinds))
    if kind == "plant":
        return replace(call, sampling=Sampling(max_tokens=0))
    if kind == "options":
        options = draw(st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4))
        return replace(call, options=tuple(options))
    sampling, constraint = draw(samplings()), None
    if kind == "constrained":
        sampling = replace(sampling, max_tokens=sampling.max_tokens + 8)
        constraint = Regex(draw(st.sampled_from(PATTERNS)))
    if kind == "scored":
        call = replace(call, scored_from=draw(st.integers(0, 40)))
    return replace(call, sampling=sampling, constraint=constraint, stream=draw(st.booleans()))


WORLDS = st.fixed_dictionaries(
    {
        "cache": st.booleans(),
        "hints": st.booleans(),
        "order": st.sampled_from(("lpm", "dfs", "fcfs", "random")),
        "chunk_tokens": st.sampled_from((1, 7, 64, 1000)),
        "max_running": st.sampled_from((1, 4, 32)),
        "num_slots": st.sampled_from((100, 120, 200, 2000)),
        "hold_min": st.sampled_from((1, 8)),
        "logprob_bytes": st.sampled_from((0, 3000, 1 << 20)),
        "ageing": st.sampled_from((1, 16)),
        "retract_every": st.sampled_from((0, 0, 1, 3)),
        "jumps": st.booleans(),
    }
)


def crowded(bench, world, **runner):
    """A bench of this world. Without a cache, retraction at every step loses all chunks."""
    if world["retract_every"] and not world["cache"]:
        world = world | {"chunk_tokens": 1000}
    return with_constraints(bench(FakeRunner(world["num_slots"], NUM_TOKENS, **runner), **world))


def with_constraints(world):
    world.pending_calls.constraints = world.constraints
    return world


def alone(bench, call):
    """What a call gets that has a large engine without any cache for itself."""
    runner = FakeRunner(2000, NUM_TOKENS)
    sizes = {"num_slots": 2000, "chunk_tokens": 1000, "max_running": 1, "cache": False}
    return with_constraints(bench(runner, **sizes)).run([replace(call, deadline=None)])[0]


def check_chunks(reply):
    """The chunks of each answer add up to it."""
    if not reply.call.stream:
        assert list(reply) == []
        return
    for index, output in enumerate(reply.result().outputs):
        chunks = [chunk for chunk in reply if chunk.index == index]
        assert "".join(chunk.text for chunk in chunks) == output.text
        assert sum((chunk.ids for chunk in chunks), ()) == output.ids
        assert sum((chunk.logprobs for chunk in chunks), ()) == output.logprobs


def check_nothing_is_held(world):
    """Once every pinned root has timed out, no cached token is locked."""
    world.now += 1000
    world.engine.expire_roots()
    world.engine.check()
    assert world.cache.num_locked == 0


@given(st.lists(st.tuples(calls(), st.integers(0, 12)), min_size=1, max_size=8), WORLDS)
@settings(max_examples=80)
def test_an_answer_is_the_same_in_any_crowd(bench, arrivals, world):
    crowd = crowded(bench, world)
    replies = []
    for call, num_steps in arrivals:
        replies.append(crowd.submit(call))
        for _ in range(num_steps):
            crowd.step()
    crowd.drain()
    for reply in replies:
        expected = alone(bench, reply.call)
        if isinstance(expected, ForkrootError):
            assert str(reply.error()) == str(expected)
            continue
        got = reply.result()
        assert replace(got, usage=NO_USAGE) == replace(expected, usage=NO_USAGE)
        assert got.usage.prompt_tokens == expected.usage.prompt_tokens
        assert got.usage.completion_tokens == expected.usage.completion_tokens
        check_chunks(reply)
    check_nothing_is_held(crowd)


def was_cut_short(completion: Completion) -> bool:
    is_aborted = any(output.finish_reason == "abort" for output in completion.outputs)
    return is_aborted or not (completion.outputs or completion.scores)


EVENTS = st.one_of(
    st.tuples(st.just("submit"), calls(), st.sampled_from(("", "", FAILS, BROKEN, "x" + BROKEN))),
    st.tuples(st.just("submit"), calls(), st.just("")),
    st.tuples(st.just("step"), st.integers(1, 6), st.none()),
    st.tuples(st.just("cancel"), st.integers(0, 20), st.none()),
    st.tuples(st.just("wait"), st.sampled_from((0.4, 1.0, 11.0)), st.none()),
    st.tuples(st.just("clear"), st.none(), st.none()),
)


def happen(crowd, replies, kind, what, end):
    if kind == "submit":
        deadline = {"": None, FAILS: 1.5, BROKEN: 0.5}.get(end)
        replies.append(
            crowd.submit(replace(what, prompt=(*what.prompt, Text(end)), deadline=deadline))
        )
    elif kind == "step":
        for _ in range(what):
            crowd.step()
    elif kind == "cancel" and replies:
        crowd.cancel(replies[what % len(replies)])
    elif kind == "wait":
        crowd.now += what
    elif kind == "clear":
        crowd.engine.clear_cache()


@given(
    events=st.lists(EVENTS, min_size=1, max_size=20),
    world=WORLDS,
    max_waiting=st.sampled_from((6, 10_000)),
    broken_on=st.sampled_from((ord(BROKEN), 5)),
)
@settings(max_examples=80)
def test_whatever_happens_to_others_each_call_ends_once_and_right(
    bench, events, world, max_waiting, broken_on
):
    world = world | {"max_waiting": max_waiting}
    crowd = crowded(bench, world, fails_on=ord(FAILS), broken_on=broken_on)
    replies = []
    for event in events:
        happen(crowd, replies, *event)
        crowd.engine.check()
    crowd.drain()
    for reply in replies:
        error = reply.error()
        if error is not None:
            assert isinstance(error, CallFailed | DeadlineExceeded | Overloaded | InvalidCall)
        elif not was_cut_short(reply.result()):
            expected = alone(bench, reply.call)
            assert replace(reply.result(), usage=NO_USAGE) == replace(expected, usage=NO_USAGE)
    check_nothing_is_held(crowd)


# --- sharing -----------------------------------------------------------------------------------


def test_what_was_computed_once_is_cached_for_the_next_call(bench, call):
    world = bench()
    text = "the prompt of both"
    first, second = world.run([call(text)]) + world.run([call(text)])
    assert first.text == second.text
    assert first.usage == Usage(prompt_tokens=18, cached_tokens=0, completion_tokens=5)
    assert second.usage == Usage(prompt_tokens=18, cached_tokens=17, completion_tokens=5)


def test_an_answer_is_cached_for_the_call_that_goes_on_after_it(bench, call):
    world = bench()
    (first,) = world.run([call("a question", max_tokens=20)])
    prompt = (Text("a question"), *first.outputs[0].segments, Text("!"))
    (second,) = world.run([Call(prompt, Sampling(temperature=0, max_tokens=1))])
    # of the last generated token nothing was computed: it was drawn and not run
    assert second.usage.cached_tokens == 10 + 19
    assert second.usage.prompt_tokens == 10 + 20 + 1


def test_without_a_cache_nothing_is_kept(bench, call):
    world = bench(cache=False)
    for _ in range(2):
        (answer,) = world.run([call("the prompt of both")])
        assert answer.usage.cached_tokens == 0
    assert world.cache.num_cached == 0


def test_calls_that_come_together_compute_their_common_prefix_once(bench, call):
    prefix = "p" * 100
    world = bench(num_slots=2000, max_running=32, chunk_tokens=1000)
    answers = world.run([call(f"{prefix}{number:02}", max_tokens=1) for number in range(32)])
    distinct = {f"{number:02}"[:end] for number in range(32) for end in (1, 2)}
    assert world.runner.num_computed <= 100 + 2 * 32
    assert world.runner.num_computed >= 100 + len(distinct)
    assert sorted(answer.usage.cached_tokens for answer in answers)[:2] == [0, 100]


def test_samples_of_one_prompt_compute_it_once(bench, call):
    world = bench(num_slots=2000, chunk_tokens=1000)
    (answer,) = world.run([call("p" * 100, n=8, temperature=1.0, seed=3, max_tokens=1)])
    assert len(answer.outputs) == 8
    assert len({output.ids for output in answer.outputs}) > 1
    # each of the others computes the last prompt token, for its own first token
    assert world.runner.num_computed == 100 + 7
    assert answer.usage == Usage(prompt_tokens=100, cached_tokens=0, completion_tokens=8)


def test_options_share_their_prompt(bench):
    world = bench(num_slots=2000, chunk_tokens=1000)
    (answer,) = world.run([Call((Text("p" * 100),), options=("yes", "no", "never"))])
    assert [score.text for score in answer.scores] == ["yes", "no", "never"]
    assert [len(score.logprobs) for score in answer.scores] == [3, 2, 5]
    assert [score.ids for score in answer.scores] == [tuple(b"yes"), tuple(b"no"), tuple(b"never")]
    # the first computes all of it; the others from the last prompt token on, whose logits they need
    assert world.runner.num_computed == 103 + (1 + 2) + (1 + 5)


def test_a_prefilled_prompt_is_cached_for_later_calls(bench, call):
    world = bench()
    (planted,) = world.run([call("the shared beginning", max_tokens=0)])
    assert planted.text == ""
    assert planted.outputs[0].finish_reason == "length"
    (answer,) = world.run([call("the shared beginning, and more")])
    assert answer.usage.cached_tokens == 20


# --- isolation ---------------------------------------------------------------------------------


def test_namespaces_share_nothing_at_once_or_later(bench, call):
    world = bench(num_slots=2000)
    text = "one prompt of all tenants"
    tenants = ("", "a", "b", "a\0")
    for _ in range(2):
        world.run([call(text, namespace=tenant, max_tokens=1) for tenant in tenants])
    assert world.runner.num_computed == 4 * (25 + 1)


def test_namespaces_do_not_wait_for_one_another(bench, call):
    world = bench(num_slots=2000)
    text = "one prompt of all tenants"
    replies = [world.submit(call(text, namespace=tenant, max_tokens=1)) for tenant in ("a", "b")]
    world.step()
    assert [reply.done() for reply in replies] == [True, True]
    assert [reply.result().usage.cached_tokens for reply in replies] == [0, 0]


def test_a_root_is_known_in_its_own_namespace_only(bench, call):
    world = bench()
    hint = ForkHint("root", branches=9)
    world.run([call("the root of a", max_tokens=0, hint=hint, namespace="a")])
    (other,) = world.run([call("the root of a: b", hint=hint, namespace="b")])
    assert other.usage.cached_tokens == 0
    assert world.roots.has(("a", "a"), "root")
    assert not world.roots.has(("b", "b"), "root")


# --- endings -----------------------------------------------------------------------------------


def test_a_call_is_cancelled_while_it_waits(bench, call):
    world = bench(max_running=1)
    world.submit(call("first", max_tokens=20))
    waiting = world.submit(call("second", stream=True))
    world.step()
    world.cancel(waiting)
    output = waiting.result().outputs[0]
    assert (output.finish_reason, output.text, output.ids) == ("abort", "", ())
    assert waiting.result().usage == Usage(prompt_tokens=6, completion_tokens=0)
    world.drain()


def test_a_call_is_cancelled_while_it_runs_and_keeps_what_it_has(bench, call):
    world = bench()
    reply = world.submit(call("first", max_tokens=20, stream=True, n=2, seed=1))
    for _ in range(5):
        world.step()
    world.cancel(reply)
    (whole,) = bench().run([reply.call])
    for output, other in zip(reply.result().outputs, whole.outputs, strict=True):
        assert output.finish_reason == "abort"
        assert 3 <= len(output.ids) <= 5
        assert output.ids == other.ids[: len(output.ids)]
    check_chunks(reply)
    world.drain()


def test_cancelling_after_the_end_changes_nothing(bench, call):
    world = bench()
    reply = world.submit(call("first"))
    world.drain()
    before = reply.result()
    world.cancel(reply)
    world.cancel(reply)
    assert reply.result() is before
    assert before.outputs[0].finish_reason == "length"


def test_scoring_that_is_cancelled_gives_no_scores(bench):
    world = bench(chunk_tokens=4)
    reply = world.submit(Call((Text("a long prompt"),), options=("yes", "no")))
    world.step()
    world.cancel(reply)
    assert reply.result().scores == ()
    world.drain()


@pytest.mark.parametrize("num_steps", [0, 3])
def test_a_deadline_ends_a_call_wherever_it_is(bench, call, num_steps):
    world = bench(max_running=1)
    world.submit(call("first", max_tokens=3 if num_steps else 100))
    late = world.submit(call("second", max_tokens=100, deadline=2.0))
    for _ in range(num_steps + 1):
        world.step()
    world.now = 2.0
    world.step()
    assert isinstance(late.error(), DeadlineExceeded)
    assert "deadline=2.0 s" in str(late.error())
    world.drain()


def test_a_full_queue_refuses_and_serves_those_it_has(bench, call):
    world = bench(max_waiting=3, max_running=1)
    replies = [world.submit(call(f"call {number}")) for number in range(5)]
    assert [reply.done() for reply in replies] == [False, False, False, True, True]
    assert all(isinstance(reply.error(), Overloaded) for reply in replies[3:])
    world.drain()
    assert all(reply.error() is None for reply in replies[:3])
    assert world.engine.counters.failed_calls == 2


def test_a_call_of_more_sequences_than_may_wait_is_too_large(bench, call):
    world = bench(max_waiting=3)
    many = world.submit(call("text", n=4, temperature=1.0))
    scored = world.submit(Call((Text("text"),), options=tuple("abcd")))
    for reply, field in ((many, "n"), (scored, "options")):
        assert isinstance(reply.error(), CallTooLarge)
        assert (reply.error().field, reply.error().value) == (field, 4)
    world.run([call("text", n=3, temperature=1.0)])


def test_a_call_that_breaks_the_runner_harms_no_other_in_its_batch(bench, call):
    world = bench(FakeRunner(600, fails_on=ord("F")))
    texts = ["good", "bad: F", "fine", "F", "well"]
    replies = [world.submit(call(text)) for text in texts]
    world.drain()
    assert [isinstance(reply.error(), CallFailed) for reply in replies] == [
        "F" in text for text in texts
    ]
    assert isinstance(replies[1].error().__cause__, RuntimeError)
    for reply in replies[::2]:
        assert reply.result().text == bench().run([reply.call])[0].text


def test_a_call_whose_logits_are_not_finite_harms_no_other_in_its_batch(bench, call):
    world = bench(FakeRunner(600, broken_on=ord("B")))
    bad = world.submit(call("B", n=3, temperature=1.0))
    good = world.submit(call("good"))
    world.drain()
    assert isinstance(bad.error(), CallFailed)
    assert good.result().text == bench().run([good.call])[0].text


@pytest.mark.parametrize("seed", range(6))
def test_samples_that_end_as_another_of_their_call_breaks_leave_nothing_behind(bench, call, seed):
    world = bench(FakeRunner(600, NUM_TOKENS, broken_on=5))
    world.run([call("text", n=8, temperature=1.0, seed=seed, max_tokens=2) for _ in range(2)])
    check_nothing_is_held(world)


def constrained(world, constraints):
    world.pending_calls.constraints = constraints
    world.engine = Engine(
        world.scheduler,
        world.runner,
        world.cache,
        world.roots,
        OutputProcessor(world.pending_calls.tokenizer, constraints),
        max_waiting=99,
    )
    return world


@pytest.mark.parametrize("pattern", ["", "forced", "(a|b)c{2}"])
@pytest.mark.parametrize("end_ids", [(), (256,)])
def test_an_answer_without_any_choice_needs_no_model(bench, call, pattern, end_ids):
    tokenizer = byte_tokenizer()
    constraints = Constraints(tokenizer.token_bytes, end_ids, tokenizer.encode_after)
    world = constrained(bench(), constraints)
    (answer,) = world.run([call("x", constraint=Regex(pattern), stream=True, n=2, max_tokens=9)])
    for output in answer.outputs:
        assert re.fullmatch(pattern, output.text)
        assert output.finish_reason == "stop"
    assert world.runner.num_runs == 0 or "|" in pattern
    check_chunks(next(iter(world.endings)))


@pytest.mark.parametrize("text", ["forced", "[ab]forced"])
def test_a_constraint_that_breaks_fails_its_call_only(bench, call, text):
    class Broken(Constraints):
        def jump_forward(self, *args, **names):
            raise RuntimeError("retokenization")

    tokenizer = byte_tokenizer()
    broken = Broken(tokenizer.token_bytes, (256,), tokenizer.encode_after)
    world = constrained(bench(), broken)
    bad, good = world.run([call("x", constraint=Regex(text), n=2, max_tokens=9), call("good")])
    assert isinstance(bad, CallFailed)
    assert "retokenization" in str(bad)
    assert good.text == bench().run([call("good")])[0].text


def test_of_a_call_that_failed_nothing_more_is_run(bench, call):
    world = bench(FakeRunner(600, fails_on=ord("F")))
    world.submit(call("F", n=3))
    world.submit(call("good"))
    world.step()
    # all four together, then one of the three alone, then the good one
    assert world.runner.num_runs == 3
    world.drain()


class Moody:
    """A runner that fails at its first runs, whatever they are."""

    def __init__(self, runner: FakeRunner, num_failures: int) -> None:
        self.runner = runner
        self.num_failures = num_failures

    def run(self, batch: Batch) -> Outcome:
        self.num_failures -= 1
        if self.num_failures >= 0:
            raise MemoryError("too much at once")
        return self.runner.run(batch)


def test_a_batch_that_fails_as_a_whole_is_run_call_by_call(bench, call):
    world = bench(Moody(FakeRunner(600), 1))
    answers = world.run([call(f"call {number}") for number in range(4)])
    assert [answer.text for answer in answers] == [
        answer.text for answer in bench().run([call(f"call {number}") for number in range(4)])
    ]


def test_seconds_of_a_batch_that_is_run_again_are_counted_once(bench, call):
    class Slow(Moody):
        def run(self, batch: Batch) -> Outcome:
            world.now += 1
            return super().run(batch)

    world = bench(Slow(FakeRunner(600), 1))
    world.run([call("a", max_tokens=1), call("b", max_tokens=1)])
    assert world.engine.counters.run_seconds == 3
    assert world.engine.counters.step_seconds == 3


# --- counters ----------------------------------------------------------------------------------


def test_counters_count_what_their_names_say(bench, call):
    world = bench()
    world.run([call("abcdef"), call("abcdef", max_tokens=2)])
    world.run([call("F", max_tokens=0)])
    counters = world.engine.counters
    assert (counters.calls, counters.failed_calls) == (3, 0)
    assert counters.prompt_tokens == 13
    assert counters.cached_tokens in (0, 5)
    assert counters.completion_tokens == 7
    assert counters.computed_tokens == world.runner.num_computed
    assert counters.steps == world.steps
    assert counters.retracted == 0


def test_retracted_sequences_are_counted_from_when_counters_were_set_anew(bench, call):
    world = bench(num_slots=40, max_running=8)
    world.run([call(f"{number}", max_tokens=30) for number in range(4)])
    counters = world.engine.counters
    assert counters.retracted == world.scheduler.num_retracted > 0
    world.engine.counters = type(counters)()
    world.run([call("one")])
    assert world.engine.counters.retracted == 0


def test_random_numbers_depend_on_the_seed_alone(bench, call):
    one = call("text", temperature=1.0, seed=7, max_tokens=8)
    answers = [bench(**size).run([one])[0].text for size in ({}, {"max_running": 1})]
    answers.append(bench().run([replace(one, sampling=replace(one.sampling, n=2))])[0].text)
    assert len(set(answers)) == 1
    (other,) = bench().run([call("text", temperature=1.0, seed=8, max_tokens=8)])
    assert other.text != answers[0]


def test_a_prompt_of_token_ids_is_taken_as_it_is(bench):
    (by_ids,) = bench().run([Call((Tokens(tuple(b"hello")),), Sampling(temperature=0))])
    (by_text,) = bench().run([Call((Text("hello"),), Sampling(temperature=0))])
    assert by_ids == by_text


def test_every_error_of_an_engine_is_one_of_ours(bench, call):
    world = bench(FakeRunner(600, fails_on=ord("F")), max_waiting=2)
    endings = world.run([call("F"), call("F" * 300), call(""), call("a"), call("b"), call("c")])
    assert all(isinstance(e, ForkrootError | Completion) for e in endings)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=12), st.integers(1, 9))
@settings(max_examples=30)
def test_steps_of_an_engine_are_deterministic(bench, sizes, chunk):
    def trace():
        world = bench(chunk_tokens=chunk, num_slots=300)
        calls = [
            Call((Text("s" + "ab" * size),), Sampling(seed=size, max_tokens=3)) for size in sizes
        ]
        texts = [answer.text for answer in world.run(calls)]
        return texts, world.steps, world.runner.num_runs, world.runner.num_computed

    assert trace() == trace()
