"""The programs of `dspy_programs.py`: what DSPy's users run, each with a program's own answers.

Predictors have four demonstrations each. "mipro" is MIPROv2 with two candidates and three trials;
"bootstrap" saves what it found and runs what it loads; "votes" are eight answers to one prompt and
their majority; "chains" are four, compared by MultiChainComparison. In a "crowded" program a pause
of the program (an answer is judged, a tool works) is used by others, whose prompts are more than
the small pool holds.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dspy

from forkroot.benchmarks.frameworks.dspy_agent import agent, passage
from forkroot.benchmarks.frameworks.dspy_agent import with_demos as demonstrated

SLOTS, FEW_SLOTS, AGENT_SLOTS = 65_536, 4_096, 8_192
Labels = Literal["food", "rooms", "staff", "noise", "price"]


class Review(dspy.Signature):
    """Read the guest's review of a hotel. Say what it is mostly about, how many stars the guest
    would give, and whether the manager should answer it today."""

    review: str = dspy.InputField(desc="What the guest wrote, word by word.")
    topic: Labels = dspy.OutputField(desc="The one thing that the review is mostly about.")
    stars: Literal[1, 2, 3, 4, 5] = dspy.OutputField(desc="One is bad, five is very good.")
    is_urgent: bool = dspy.OutputField(desc="Whether the manager should answer it today.")


class Response(dspy.Signature):
    """Choose how the hotel answers a review, given what it is about."""

    review: str = dspy.InputField()
    topic: str = dspy.InputField()
    tone: Literal["thankful", "sorry", "neutral"] = dspy.OutputField()
    offer: Literal["none", "voucher", "refund"] = dspy.OutputField()


class TwoSteps(dspy.Module):  # type: ignore[misc]
    """Judges a review, and then chooses how to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.answer = dspy.Predict(Review), dspy.Predict(Response)

    def forward(self, review: str) -> Any:
        found = self.read(review=review)
        return self.answer(review=review, topic=found.topic)


class Program(NamedTuple):
    """run: gives its answers. is_greedy: these are the same in every mode. is_crowded: others use
    the pool, of `num_slots`, in its pauses. has_siblings: its calls come together."""

    run: Callable[[], list[str]]
    is_greedy: bool = True
    is_crowded: bool = False
    num_slots: int = SLOTS
    has_siblings: bool = False


def examples(count: int, seed: int) -> list[Any]:
    """Reviews with labels."""
    rng = random.Random(seed)
    return [
        dspy.Example(
            review=passage(rng, 30),
            topic=rng.choice(("food", "rooms", "staff")),
            stars=rng.randint(1, 5),
            is_urgent=rng.random() < 0.5,
            tone="sorry",
            offer="none",
        ).with_inputs("review")
        for _ in range(count)
    ]


def with_demos(module: Any, seed: int) -> Any:
    """The module with four demonstrations for each predictor."""
    for predictor in module.predictors():
        names = predictor.signature.fields
        predictor.demos = [
            {name: it.get(name, "rooms") for name in names} for it in examples(4, seed)
        ]
    return module


def text(prediction: Any) -> str:
    """A prediction as text."""
    return json.dumps(prediction.toDict(), sort_keys=True, default=str)


def is_topic(example: Any, prediction: Any, trace: Any = None) -> float:
    """The metric: whether the topic is right."""
    return float(prediction.topic == example.topic)


def parallel(pairs: list[Any], num_threads: int) -> list[str]:
    """Answers of programs to inputs, in threads."""
    run = dspy.Parallel(num_threads=num_threads, disable_progress_bar=True)
    return [text(prediction) for prediction in run(pairs)]


def crowd(num_slots: int, seed: int) -> None:
    """Others need more than the pool holds."""
    rng = random.Random(seed + 2)
    prompts = [f"{number}: {passage(rng, 600)}" for number in range(num_slots * 9 // 8 // 768)]
    dspy.settings.lm.runtime.connection().backend.crowd(prompts)


def programs(size: int, seed: int) -> dict[str, Program]:
    """All, where `size` is the number of examples of the largest."""
    data = examples(size, seed + 1)
    few = data[: max(4, size // 12)]
    return _in_threads(data, few, seed) | _one_by_one(few, seed) | _crowded(few, seed)


def _in_threads(data: list[Any], few: list[Any], seed: int) -> dict[str, Program]:
    judge, steps = with_demos(dspy.Predict(Review), seed), with_demos(TwoSteps(), seed)

    def evaluate() -> list[str]:
        found = dspy.Evaluate(devset=data, metric=is_topic, num_threads=32)(judge)
        return [text(prediction) for _, prediction, _ in found.results]

    def in_parallel() -> list[str]:
        return parallel([(steps, example) for example in data[: len(data) // 4]], 16)

    def mipro() -> list[str]:
        lm = dspy.settings.lm.copy(seed=seed)
        optimizer = dspy.MIPROv2(
            *(is_topic, lm, lm), auto=None, num_candidates=2, max_bootstrapped_demos=1,
            max_labeled_demos=3, num_threads=8, seed=seed,
        )  # fmt: skip
        program = optimizer.compile(
            *(dspy.Predict(Review),), trainset=few, valset=data[: 2 * len(few)], num_trials=3,
            minibatch=False, data_aware_proposer=False, program_aware_proposer=False,
        )  # fmt: skip
        return [text(program(review=example.review)) for example in few[:4]]

    def agents() -> list[str]:
        return parallel([(agent(), it) for it in complaints(4, seed)], 4)

    def agents_with_demos() -> list[str]:
        pairs = [(demonstrated(agent(), random.Random(seed)), it) for it in complaints(4, seed)]
        return parallel(pairs, 4)

    return {
        "evaluate": Program(evaluate, has_siblings=True),
        "parallel": Program(in_parallel, has_siblings=True),
        "mipro": Program(mipro),
        "agent": Program(agents),
        "agent with demos": Program(agents_with_demos),
    }


def _one_by_one(few: list[Any], seed: int) -> dict[str, Program]:
    judge = with_demos(dspy.Predict(Review), seed)

    def bootstrap() -> list[str]:
        optimizer = dspy.BootstrapFewShot(lambda *_: True, max_bootstrapped_demos=len(few) - 1)
        program = optimizer.compile(with_demos(dspy.Predict(Review), seed), trainset=few)
        again = dspy.Predict(Review)
        with tempfile.TemporaryDirectory() as folder:
            program.save(Path(folder) / "program.json")
            again.load(Path(folder) / "program.json")
        return [text(again(review=example.review)) for example in few]

    def votes() -> list[str]:
        found = [judge(review=it.review, config={"n": 8, "temperature": 1.0}) for it in few[:4]]
        return [text(dspy.majority(it, field="topic")) for it in found]

    def chains() -> list[str]:
        think = with_demos(dspy.ChainOfThought(Review), seed)
        compare = dspy.MultiChainComparison(Review, M=4, max_tokens=128)
        config = {"n": 4, "temperature": 1.0, "max_tokens": 128}
        found = [(it.review, think(review=it.review, config=config)) for it in few[:3]]
        return [text(compare(it.completions, review=review)) for review, it in found]

    def best_of_n() -> list[str]:
        best = dspy.BestOfN(judge, N=4, reward_fn=lambda *_: 0.0, threshold=1.0)
        return [text(best(review=example.review)) for example in few[:4]]

    return {
        "bootstrap": Program(bootstrap),
        "votes": Program(votes, is_greedy=False),
        "chains": Program(chains, is_greedy=False),
        "best of n": Program(best_of_n, is_greedy=False),
    }


def _crowded(few: list[Any], seed: int) -> dict[str, Program]:
    judge, steps = with_demos(dspy.Predict(Review), seed), with_demos(TwoSteps(), seed)

    def reward(*_: Any) -> float:
        crowd(FEW_SLOTS, seed)
        return 0.0

    def best_of_n() -> list[str]:
        best = dspy.BestOfN(judge, N=4, reward_fn=reward, threshold=1.0)
        return [text(best(review=example.review)) for example in few[:3]]

    def two_steps() -> list[str]:
        found = [(text(steps(review=it.review)), reward()) for it in few[:8]]
        return [answer for answer, _ in found]

    def agents() -> list[str]:
        react = agent(lambda: crowd(AGENT_SLOTS, seed))
        return [text(react(**it.inputs())) for it in complaints(1, seed)]

    return {
        "best of n, crowded": Program(
            best_of_n, is_greedy=False, is_crowded=True, num_slots=FEW_SLOTS
        ),
        "two steps, crowded": Program(two_steps, is_crowded=True, num_slots=FEW_SLOTS),
        "agent, crowded": Program(agents, is_crowded=True, num_slots=AGENT_SLOTS),
    }


def complaints(count: int, seed: int) -> list[Any]:
    """The inputs of the agent."""
    rng = random.Random(seed + 3)
    return [dspy.Example(complaint=passage(rng, 40)).with_inputs("complaint") for _ in range(count)]
