"""Programs of DSPy run unchanged on the embedded model: what users of the framework do all day."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

dspy = pytest.importorskip("dspy")

from forkroot.adapters.dspy import LM
from forkroot.core.local import LocalBackend

COUNTRIES = {
    "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo", "Kenya": "Nairobi",
    "Norway": "Oslo", "Egypt": "Cairo", "Peru": "Lima", "Cuba": "Havana", "Greece": "Athens",
    "Poland": "Warsaw", "Austria": "Vienna",
}  # fmt: skip
EXAMPLES = [
    dspy.Example(question=f"What is the capital of {country}?", answer=city).with_inputs("question")
    for country, city in COUNTRIES.items()
]


def is_right(example: Any, prediction: Any, trace: Any = None, *_: Any) -> bool:
    return bool(example.answer == prediction.answer)


@pytest.fixture(scope="module")
def wide() -> Iterator[LocalBackend]:
    """The embedded model with room for the long prompts of optimizers."""
    with LocalBackend.from_folder("tiny", dtype="float32", num_slots=40_000) as backend:
        yield backend


@pytest.fixture
def lm(wide: LocalBackend) -> Iterator[LM]:
    lm = LM(wide, temperature=0, max_tokens=48, cache=False)
    with dspy.context(lm=lm):
        yield lm


def cached_share(backend: LocalBackend) -> float:
    counters = backend.info().counters
    return counters["cached_tokens"] / counters["prompt_tokens"]


def test_an_evaluation_in_many_threads_answers_as_one_by_one(lm: LM, wide: LocalBackend) -> None:
    predict = dspy.Predict("question -> answer")
    alone = [predict(question=example.question).answer for example in EXAMPLES]
    evaluate = dspy.Evaluate(devset=EXAMPLES * 3, metric=is_right, num_threads=8)
    wide.clear_cache()
    wide.reset_counters()
    found = evaluate(predict)
    assert [prediction.answer for _, prediction, _ in found.results] == alone * 3
    assert found.score > 80
    assert cached_share(wide) > 0.6


def test_parallel_and_batch_give_answers_in_order(lm: LM) -> None:
    predict = dspy.Predict("question -> answer")
    alone = [predict(question=example.question).answer for example in EXAMPLES]
    parallel = dspy.Parallel(num_threads=6, disable_progress_bar=True)
    pairs = [(predict, example) for example in EXAMPLES]
    assert [it.answer for it in parallel(pairs)] == alone
    batch = predict.batch(EXAMPLES, num_threads=6, disable_progress_bar=True)
    assert [it.answer for it in batch] == alone


def test_bootstrapping_finds_demonstrations(lm: LM) -> None:
    optimizer = dspy.BootstrapFewShot(is_right, max_bootstrapped_demos=2, max_labeled_demos=2)
    program = optimizer.compile(dspy.Predict("question -> answer"), trainset=EXAMPLES[:4])
    assert len(program.demos) == 2
    assert program(question="What is the capital of Peru?").answer


def test_best_of_n_and_refine_stop_at_a_good_answer(lm: LM) -> None:
    chosen: type[dspy.Signature] = dspy.Signature(
        {"question": (str, dspy.InputField()), "n": (Literal[1, 2, 3], dspy.OutputField())}
    )

    for kind in (dspy.BestOfN, dspy.Refine):
        rewards = list[float]()

        def is_two(arguments: Any, prediction: Any, rewards: list[float] = rewards) -> float:
            rewards.append(float(prediction.n == 2))
            return rewards[-1]

        module = kind(dspy.Predict(chosen), N=12, reward_fn=is_two, threshold=1.0)
        found = module(question="Pick a number.").n
        assert found in (1, 2, 3)
        assert 1.0 not in rewards[:-1]
        assert len(rewards) == 12 or found == 2


class Reason(dspy.Signature):
    """Think, then choose."""

    question: str = dspy.InputField()
    choice: Literal["yes", "no"] = dspy.OutputField()


def test_a_chain_of_thought_ends_in_its_typed_answer_within_its_budget(lm: LM) -> None:
    found = dspy.ChainOfThought(Reason)(question="Is it?", config={"temperature": 2.0})
    assert found.choice in ("yes", "no")
    assert isinstance(found.reasoning, str)


def test_an_agent_uses_its_tools(lm: LM) -> None:
    used = []

    def look_up(word: str) -> str:
        """Look up a word."""
        used.append(word)
        return f"{word} is a word"

    agent = dspy.ReAct("question -> answer", tools=[look_up], max_iters=3)
    found = agent(question="What does tree mean?")
    names = [value for key, value in found.trajectory.items() if key.startswith("tool_name")]
    assert set(names) <= {"look_up", "finish"}
    assert isinstance(found.answer, str)
    assert len(used) == sum(
        "Execution error" not in str(found.trajectory[f"observation_{place}"])
        for place, name in enumerate(names)
        if name == "look_up"
    )


@pytest.mark.parametrize("style", [dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter])
def test_native_tool_calls_have_arguments_of_their_types(lm: LM, style: Any) -> None:
    def add(first: int, second: int, why: Literal["sum", "test"]) -> int:
        """Add two numbers."""
        return first + second

    signature = dspy.Signature(
        {
            "question": (str, dspy.InputField()),
            "tools": (list[dspy.Tool], dspy.InputField()),
            "calls": (dspy.ToolCalls, dspy.OutputField()),
        }
    )
    with dspy.context(adapter=style(use_native_function_calling=True)):
        found = dspy.Predict(signature)(question="What is 2 + 3?", tools=[dspy.Tool(add)])
    for call in found.calls.tool_calls:
        assert call.name == "add"
        assert isinstance(call.execute([dspy.Tool(add)]), int)


def test_a_saved_program_answers_as_before(lm: LM, tmp_path: Path) -> None:
    program = dspy.ChainOfThought("question -> answer")
    program.predict.demos = [{"question": "1?", "reasoning": "One.", "answer": "1"}]
    program.predict.lm = LM("tiny", temperature=0, max_tokens=40, cache=False)
    before = program(question="What is the capital of France?")
    program.save(tmp_path / "program.json")
    again = dspy.ChainOfThought("question -> answer")
    again.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
    assert isinstance(again.predict.lm, LM)
    found = again(question="What is the capital of France?")
    assert (found.answer, found.reasoning) == (before.answer, before.reasoning)
    again.predict.lm.runtime.connection().backend.close()


def test_a_field_streams_as_it_is_written(lm: LM) -> None:
    predict = dspy.Predict("question -> answer")
    listeners = [dspy.streaming.StreamListener(signature_field_name="answer")]
    program = dspy.streamify(predict, stream_listeners=listeners)

    async def read() -> tuple[str, Any]:
        text, last = "", None
        async for piece in program(question="What is the capital of Japan?"):
            if isinstance(piece, dspy.streaming.StreamResponse):
                text += piece.chunk
            else:
                last = piece
        return text, last

    text, last = asyncio.run(read())
    assert text.strip() == last.answer


def test_awaited_programs_answer_together(lm: LM) -> None:
    predict = dspy.Predict("question -> answer")

    async def ask() -> list[str]:
        found = await asyncio.gather(
            *(predict.acall(question=example.question) for example in EXAMPLES[:6])
        )
        return [it.answer for it in found]

    assert asyncio.run(ask()) == [
        predict(question=example.question).answer for example in EXAMPLES[:6]
    ]


def test_an_instruction_optimizer_finds_the_same_program_again(wide: LocalBackend) -> None:
    pytest.importorskip("optuna")
    lm = LM(wide, temperature=0, max_tokens=48, cache=False, seed=5)

    def optimized() -> Any:
        optimizer = dspy.MIPROv2(
            is_right, auto=None, num_candidates=2, max_bootstrapped_demos=1, max_labeled_demos=1,
            prompt_model=lm, task_model=lm, num_threads=4, seed=1,
        )  # fmt: skip
        return optimizer.compile(
            dspy.Predict("question -> answer"), trainset=EXAMPLES[:4], valset=EXAMPLES[4:8],
            num_trials=2, minibatch=False, data_aware_proposer=False, program_aware_proposer=False,
        )  # fmt: skip

    with dspy.context(lm=lm):
        one, other = optimized(), optimized()
        assert one.dump_state() == other.dump_state()
        assert len(one.trial_logs) == len(other.trial_logs) >= 2
        assert one.score == other.score >= one.trial_logs[1]["full_eval_score"]
        assert one(question="What is the capital of Peru?").answer


def test_a_reflective_optimizer_runs(lm: LM) -> None:
    pytest.importorskip("gepa")
    optimizer = dspy.GEPA(
        lambda *arguments: dspy.Prediction(
            score=float(is_right(*arguments[:2])), feedback="Short."
        ),
        max_metric_calls=12,
        reflection_lm=lm,
        reflection_minibatch_size=2,
        num_threads=4,
    )
    program = optimizer.compile(
        dspy.Predict("question -> answer"), trainset=EXAMPLES[:4], valset=EXAMPLES[4:8]
    )
    assert program(question="What is the capital of Peru?").answer
