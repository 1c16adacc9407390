"""What the adapter sends the runtime beside the request: forks, hints, constraints."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any, Literal

import pytest

dspy = pytest.importorskip("dspy")

from dspy import lm15

from forkroot.adapters.dspy import Engine, watcher
from forkroot.adapters.dspy.hints import returning
from forkroot.adapters.testing import ScriptedBackend, root_of, written
from forkroot.core.api.protocol import Call, Completion, InvalidCall, Overloaded, Regex, Usage
from forkroot.core.common.harmless import hint_errors

from .dspy_requests import lm_of

pytestmark = pytest.mark.usefixtures("fresh_dspy_cache")


# --- forks --------------------------------------------------------------------------------------


def test_n_answers_come_from_one_fork() -> None:
    backend = ScriptedBackend(lambda call: ["a", "b", "c"][: call.sampling.n])
    assert lm_of(backend, temperature=1.0)("Hello", n=3) == ["a", "b", "c"]
    assert [call.sampling.n for call in backend.calls if call.sampling.max_tokens != 0] == [3]


def test_n_answers_of_an_awaited_call_come_from_one_fork() -> None:
    backend = ScriptedBackend(lambda call: ["a", "b"][: call.sampling.n])
    assert asyncio.run(lm_of(backend, temperature=1.0).acall("Hello", n=2)) == ["a", "b"]
    assert [call.sampling.n for call in backend.calls] == [2]


def test_the_prompt_of_a_fork_is_counted_once() -> None:
    def answer(call: Call) -> Completion:
        return Completion(tuple(map(written, ("ab", "c"))), Usage(10, 4, 3))

    lm = lm_of(ScriptedBackend(answer), temperature=1.0)
    lm("Hello", n=2)
    result = lm.history[-1]["usage"]
    assert (result["prompt_tokens"], result["completion_tokens"]) == (10, 3)


def test_a_fork_that_failed_is_forked_anew() -> None:
    answers: Iterator[Any] = iter([Overloaded("full"), ["a", "b"]])
    backend = ScriptedBackend(lambda call: next(answers))
    lm = lm_of(backend, temperature=1.0, num_retries=1)
    assert lm("Hello", n=2) == ["a", "b"]
    assert [call.sampling.n for call in backend.calls] == [2, 2]


# --- hints --------------------------------------------------------------------------------------


def test_all_but_the_last_message_is_hinted() -> None:
    backend = ScriptedBackend("[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")
    lm = lm_of(backend)
    predict = dspy.Predict("question -> answer")
    predict.demos = [{"question": "1 + 1?", "answer": "2"}]
    with dspy.context(lm=lm):
        predict(question="2 + 2?")
        predict(question="3 + 3?")
    first, second = map(root_of, backend.calls)
    assert first is not None
    assert first[-1] == 3
    assert first == second


@pytest.mark.parametrize(
    ("cache", "end"),
    [
        (lm15.CacheConfig(prefix="stable"), 1),
        (lm15.CacheConfig(prefix="history"), 4),
        (lm15.CacheConfig(prefix_until_index=1), 3),
        (lm15.CacheConfig(mode="off"), None),
    ],
)
def test_an_explicit_cache_configuration_is_the_hint(
    cache: lm15.CacheConfig, end: int | None
) -> None:
    backend = ScriptedBackend("a")
    words = ("user", "assistant", "user")
    messages = tuple(lm15.Message(role, (lm15.TextPart(role),)) for role in words)  # type: ignore[arg-type]
    config = lm15.Config(cache=cache)
    Engine(backend).complete(
        lm15.Request(model="m", messages=messages, system="Be kind.", config=config)
    )
    hint = backend.calls[-1].hint
    assert (None if hint is None else hint.prefix_end) == end


def test_without_hints_answers_are_requested_one_by_one() -> None:
    backend = ScriptedBackend(["a", "b"])
    assert lm_of(backend, temperature=1.0, hints=False)("Hello", n=2) == ["a", "b"]
    assert [call.sampling.n for call in backend.calls] == [1, 1]


def test_hints_can_be_turned_off() -> None:
    backend = ScriptedBackend("a")
    Engine(backend, hints=False).complete(
        lm15.Request(model="m", messages=(lm15.Message.user("x"),), system="Be kind.")
    )
    assert backend.calls[-1].hint is None


def test_an_evaluation_sends_its_prefix_ahead() -> None:
    backend = ScriptedBackend("[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")
    devset = [dspy.Example(question=f"{n}?", answer="x").with_inputs("question") for n in range(6)]
    with dspy.context(lm=lm_of(backend)):
        found = dspy.Evaluate(devset=devset, metric=lambda e, p: p.answer == "x", num_threads=3)(
            dspy.Predict("question -> answer")
        )
    assert found.score == 100
    planted, *calls = backend.calls
    assert planted.sampling.max_tokens == 0
    assert planted.hint is not None
    assert planted.hint.branches == 6
    assert {call.hint.root for call in calls if call.hint is not None} == {planted.hint.root}


@pytest.mark.parametrize("way", ["Parallel", "batch"])
def test_what_runs_in_threads_sends_its_prefix_ahead(way: str) -> None:
    backend = ScriptedBackend("[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")
    program = dspy.Predict("question -> answer")
    examples = [dspy.Example(question=f"{n}?").with_inputs("question") for n in range(6)]
    with dspy.context(lm=lm_of(backend)):
        if way == "batch":
            found = program.batch(examples, num_threads=3)
        else:
            found = dspy.Parallel(num_threads=3)([(program, example) for example in examples])
    assert [it.answer for it in found] == ["x"] * 6
    planted, *calls = backend.calls
    assert planted.sampling.max_tokens == 0
    assert planted.hint is not None
    assert planted.hint.branches == 6
    assert {call.hint.root for call in calls if call.hint is not None} == {planted.hint.root}


def test_programs_run_though_their_prefix_cannot_be_sent_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(modules: Any) -> None:
        raise LookupError("no predictors")

    monkeypatch.setattr(watcher, "plant_all", broken)
    backend = ScriptedBackend("[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")
    program, before = dspy.Predict("question -> answer"), hint_errors.total
    with dspy.context(lm=lm_of(backend)):
        found = dspy.Parallel(num_threads=2)([(program, {"question": f"{n}"}) for n in range(2)])
    assert [it.answer for it in found] == ["x"] * 2
    assert hint_errors.total == before + 1


def test_programs_that_run_once_each_send_nothing_ahead() -> None:
    backend = ScriptedBackend("[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")
    programs = dspy.Predict("question -> answer"), dspy.Predict("topic -> answer")
    with dspy.context(lm=lm_of(backend)):
        dspy.Parallel(num_threads=2)(
            [(programs[0], {"question": "a"}), (programs[1], {"topic": "b"})]
        )
    assert all(call.sampling.max_tokens != 0 for call in backend.calls)


def test_a_watcher_that_was_taken_away_comes_back() -> None:
    backend = ScriptedBackend("[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]")
    lm = lm_of(backend)
    with dspy.context(lm=lm, callbacks=[]):
        dspy.Predict("question -> answer")(question="2 + 2?")
    assert isinstance(backend.calls[-1].constraint, Regex)


# --- what a run comes back to -------------------------------------------------------------------

ANSWER = "[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]"
LONG = "Which of these words comes first in a list that is sorted by their last letters? " * 3


def kept_and_calls(backend: ScriptedBackend) -> str:
    """What was submitted: a call, a prompt that is kept, or one that is kept no more."""
    return "".join(
        "c" if call.sampling.max_tokens != 0 else "u" if branches_of(call) == 0 else "k"
        for call in backend.calls
    )


def branches_of(call: Call) -> int | None:
    assert call.hint is not None
    return call.hint.branches


def test_a_prompt_that_a_run_comes_back_to_is_kept_until_the_run_ends() -> None:
    backend = ScriptedBackend(ANSWER)
    with dspy.context(lm=lm_of(backend)):
        best = dspy.BestOfN(
            dspy.Predict("question -> answer"), N=3, reward_fn=lambda *_: 0.0, threshold=1.0
        )
        best(question=LONG)
        assert kept_and_calls(backend) == "cckcu"  # known after two; then it is kept already
        best(question=LONG + "And now?")
    assert kept_and_calls(backend) == "cckcu" + "ckccu"  # known from the first one on
    calls = [call for call in backend.calls if call.sampling.max_tokens != 0]
    kept = [call for call in backend.calls if call.sampling.max_tokens == 0]
    assert [kept[0].prompt, kept[2].prompt] == [calls[1].prompt, calls[3].prompt]
    assert len({call.hint.root for call in kept if call.hint is not None}) == 2


def test_awaited_runs_keep_what_they_come_back_to() -> None:
    backend = ScriptedBackend(ANSWER)

    class Twice(dspy.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.predict = dspy.Predict("question -> answer")

        async def aforward(self, question: str) -> Any:
            await self.predict.acall(question=question)
            return await self.predict.acall(question=question + "And now?")

    with dspy.context(lm=lm_of(backend)):
        asyncio.run(Twice().acall(LONG))
    assert kept_and_calls(backend) == "cc" + "ku"


def test_the_trajectory_of_an_agent_is_kept_while_its_tools_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(returning, "AHEAD_AFTER", 60.0)  # on a busy machine, too

    def step(name: str) -> str:
        args = '{"word": "tree"}' if name == "look_up" else "{}"
        named = f"[[ ## next_tool_name ## ]]\n{name}\n\n[[ ## next_tool_args ## ]]\n{args}"
        return f"[[ ## next_thought ## ]]\nSo.\n\n{named}\n\n[[ ## completed ## ]]"

    reasoned = "[[ ## reasoning ## ]]\nSo.\n\n" + ANSWER
    backend = ScriptedBackend([*map(step, ("look_up", "look_up", "finish")), reasoned])
    at_work = list[str]()

    def look_up(word: str) -> str:
        """Look up a word."""
        at_work.append(kept_and_calls(backend))
        return f"{word} is a word. " * 10

    with dspy.context(lm=lm_of(backend)):
        dspy.ReAct("question -> answer", tools=[look_up])(question=LONG)
    assert at_work == ["c", "cck"]
    assert kept_and_calls(backend) == "cck" + "ck" + "cu"


def test_answers_of_one_fork_and_other_questions_are_nothing_to_come_back_to() -> None:
    backend = ScriptedBackend(lambda call: [ANSWER] * call.sampling.n)

    class Two(dspy.Module):  # type: ignore[misc]
        def forward(self) -> Any:
            predict = dspy.Predict("question -> answer")
            predict(question="1?", config={"n": 3})
            return predict(question="2?")

    with dspy.context(lm=lm_of(backend)):
        Two()()
        dspy.Predict("question -> answer")(question=LONG)
        dspy.Predict("question -> answer")(question=LONG)
    assert kept_and_calls(backend) == "cccc"


def test_without_hints_nothing_is_kept() -> None:
    backend = ScriptedBackend(ANSWER)
    with dspy.context(lm=lm_of(backend, hints=False)):
        best = dspy.BestOfN(
            dspy.Predict("question -> answer"), N=3, reward_fn=lambda *_: 0.0, threshold=1.0
        )
        best(question=LONG)
    assert kept_and_calls(backend) == "ccc"


# --- constraints --------------------------------------------------------------------------------


class Verdict(dspy.Signature):
    """Judge."""

    text: str = dspy.InputField()
    label: Literal["good", "bad"] = dspy.OutputField()


def test_answers_are_constrained_unless_that_is_turned_off() -> None:
    backend = ScriptedBackend("[[ ## label ## ]]\ngood\n\n[[ ## completed ## ]]")
    for settings, config, is_constrained in (
        ({}, {}, True),
        ({"constrain": False}, {}, False),
        ({}, {"constrain": False}, False),
    ):
        with dspy.context(lm=lm_of(backend, **settings)):
            dspy.Predict(Verdict)(text="x", config=config)
        assert isinstance(backend.calls[-1].constraint, Regex) is is_constrained


def test_a_pattern_that_a_runtime_refuses_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    def answer(call: Call) -> Any:
        if call.constraint is not None:
            return InvalidCall("regex", "...", "a shorter one")
        return "[[ ## label ## ]]\ngood\n\n[[ ## completed ## ]]"

    backend = ScriptedBackend(answer)
    with dspy.context(lm=lm_of(backend)):
        predict = dspy.Predict(Verdict)
        assert [predict(text=text).label for text in "xy"] == ["good", "good"]
    assert [call.constraint is None for call in backend.calls] == [False, True, True]
    assert caplog.text.count("not constrained") == 1


def test_what_a_backend_object_has_seen_is_kept() -> None:
    backend = ScriptedBackend("a")
    lm = lm_of(backend)
    gc.collect()
    lm("A long beginning of words that the next prompt has too. " * 5 + "One?")
    gc.collect()
    lm("A long beginning of words that the next prompt has too. " * 5 + "Two?")
    assert [call.hint is None for call in backend.calls if call.sampling.max_tokens != 0] == [
        *(True, False),
    ]


def test_a_module_says_in_its_second_run_what_follows_its_first_predictor() -> None:
    class Chain(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = dspy.Predict("question -> thought: int")
            self.last = dspy.Predict("thought -> answer: int")

        def forward(self, question: str) -> Any:
            return self.last(thought=str(self.first(question=question).thought))

    backend = ScriptedBackend(
        "[[ ## thought ## ]]\n1\n\n[[ ## answer ## ]]\n2\n\n[[ ## completed ## ]]"
    )
    chain = Chain()
    with dspy.context(lm=lm_of(backend)):
        for _ in range(2):
            chain(question="Why?")
        chain.first(question="Alone?")
    hints = [call.hint for call in backend.calls if call.sampling.max_tokens != 0]
    assert [it.calls_left for it in hints if it is not None] == [None, None, 1, 0, 0]
    assert [it.next_use for it in hints if it is not None][2:] == [0, 0, 0]
    assert len({it.program for it in hints if it is not None}) == 3
    kinds = [it.kind for it in hints if it is not None]
    assert all(str(it).endswith(".Chain") for it in kinds[:4])
    assert kinds[4:] == ["dspy.Predict(StringSignature)"]
