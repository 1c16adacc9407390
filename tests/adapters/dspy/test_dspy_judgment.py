"""Decisions with their distributions: by a client of their own, and in a request's schema."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import math
from typing import Literal

import pytest

dspy = pytest.importorskip("dspy")

from dspy import lm15
from dspy.experimental import Choice, Noul, Score

from forkroot.adapters.dspy import Engine, Judge
from forkroot.adapters.testing import ScriptedBackend, prompt_text, scored, written
from forkroot.core.api.protocol import Backend, Call, Completion, OptionScore, Regex, Usage

pytestmark = [
    pytest.mark.usefixtures("fresh_dspy_cache"),
    pytest.mark.filterwarnings("ignore:.*experimental"),
]


Stars = Score["bad", "fair", "good"]
Kind = Choice[("a", "A letter"), ("b", "Another one")]


class Review(dspy.Signature):
    """Judge the review."""

    review: str = dspy.InputField()
    is_good: bool = dspy.OutputField(desc="Whether the review is good.")
    topic: Literal["food", "rooms"] = dspy.OutputField(desc="What it is about.")
    stars: Stars = dspy.OutputField(desc="How good it is.")


def answer(call: Call) -> Completion:
    likeliest = {"true": "true", "rooms": "rooms", "2": "2"}
    best = next(option for option in call.options if option in likeliest)
    return Completion((), Usage(10, 5, 0), scored(call, best))


def test_each_output_is_one_scored_question_over_one_state() -> None:
    backend = ScriptedBackend(answer)
    with dspy.context(lm=Judge(backend, cache=False)):
        found = dspy.Predict(Review)(review="Fine beds.")
    assert (found.is_good, found.topic, found.stars.level) == (True, "rooms", 1)
    assert [call.options for call in backend.calls] == [
        ("true", "false"),
        ("food", "rooms"),
        ("0", "1", "2"),
    ]
    assert len({call.hint for call in backend.calls}) == 1
    assert all("Fine beds." in prompt_text(call.prompt) for call in backend.calls)


def test_an_awaited_decision_is_the_same() -> None:
    with dspy.context(lm=Judge(ScriptedBackend(answer), cache=False)):
        found = asyncio.run(dspy.Predict(Review).acall(review="Fine beds."))
    assert found.topic == "rooms"


def test_decisions_are_kept_in_the_cache_and_in_the_history() -> None:
    backend = ScriptedBackend(answer)
    judge = Judge(backend)
    with dspy.context(lm=judge, track_usage=True):
        first = dspy.Predict(Review)(review="Kept beds.")
        again = dspy.Predict(Review)(review="Kept beds.")
    assert len(backend.calls) == 3
    assert again.topic == first.topic
    assert [entry["cache_hit"] for entry in judge.history] == [False, True]
    assert first.get_lm_usage()["forkroot/scripted"]["prompt_tokens"] == 30


class Decided(dspy.Signature):
    """Decide."""

    text: str = dspy.InputField()
    sure: Noul = dspy.OutputField(desc="Whether it is a text.")
    kind: Kind = dspy.OutputField(desc="Which.")


def test_a_real_models_distributions_sum_to_one(local: Backend) -> None:
    with dspy.context(lm=Judge(local, cache=False)):
        found = dspy.Predict(Decided)(text="Hello")
    assert 0 < found.sure.probability < 1
    assert found.kind.value in ("a", "b")
    assert math.isclose(sum(found.kind.probabilities.values()), 1)


SCHEMA = lm15.judgments(
    good=lm15.yes_no("Is it good?"),
    topic=lm15.choice("What is it about?", ["food", "foods"]),
    stars=lm15.score("How good?", ["bad", "fair"]),
)


def judged(**config: object) -> lm15.Request:
    result = lm15.Config(response_format=SCHEMA, **config)  # type: ignore[arg-type]
    return lm15.Request(model="m", messages=(lm15.Message.user("Fine beds."),), config=result)


def test_probabilities_of_a_schema_are_measured(local: Backend) -> None:
    response = Engine(local).complete(judged(probabilities="required", temperature=0))
    (part,) = response.message.parts
    assert isinstance(part, lm15.DataPart)
    assert part.method == "candidate_sequence_likelihood"
    assert part.probabilities is not None
    keys = {name: set(result) for name, result in part.probabilities.items()}
    assert keys["good"] == {"true", "false"}
    assert keys["topic"] == {"food", "foods"}
    assert keys["stars"] == {"0", "1"}
    assert all(math.isclose(sum(result.values()), 1) for result in part.probabilities.values())
    best = max(part.probabilities["topic"], key=lambda key: part.probabilities["topic"][key])
    assert part.value["topic"] == best  # type: ignore[index,call-overload]
    assert response.usage.input_tokens > 0


def test_fields_that_are_not_judgments_are_generated() -> None:
    schema = {
        "type": "object",
        "properties": {"why": {"type": "string"}, "good": {"type": "boolean"}},
        "required": ["why", "good"],
    }

    def say(call: Call) -> Completion:
        if not call.options:
            return Completion((written('"soft beds",'),))
        scores = tuple(OptionScore(text, (), (), (), (-1.0, -1.0)) for text in call.options)
        return Completion((), Usage(), scores)

    backend = ScriptedBackend(say)
    result = {"type": "json_schema", "schema": schema}
    config = lm15.Config(response_format=result, probabilities="if_available")
    request = lm15.Request(model="m", messages=(lm15.Message.user("?"),), config=config)
    (part,) = Engine(backend).complete(request).message.parts
    assert isinstance(part, lm15.DataPart)
    assert part.value == {"why": "soft beds", "good": True}
    assert part.probabilities == {"good": {"true": 0.5, "false": 0.5}}
    first, second = backend.calls
    assert isinstance(first.constraint, Regex)
    assert prompt_text(second.prompt).endswith('assistant: {"why": "soft beds", "good": ')
