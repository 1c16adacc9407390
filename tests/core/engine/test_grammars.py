"""Calls under grammars, through the engine: valid, in time, and the same whatever runs beside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from forkroot.core.api.protocol import Call, Grammar, InvalidCall, JsonSchema, Sampling, Text
from forkroot.core.local import LocalBackend

from ..conftest import texts

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "age", "children"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"id": {"type": "integer"}, "more": {"type": "object"}}}
SUM = 'start: term ("+" term)*\nterm: /[0-9]{1,3}/ | "(" start ")"\n'
LIST = 'root ::= item+\nitem ::= "- " [a-z ]+ "\\n" | "> " item\n'
CONSTRAINTS = (JsonSchema(TREE), JsonSchema(OPEN), Grammar(SUM), Grammar(LIST, "gbnf"))


def calls(call):
    return [
        call(f"{index} {kind}", constraint=constraint, **sampling)
        for kind, constraint in enumerate(CONSTRAINTS)
        for index, sampling in enumerate(
            (
                {"max_tokens": 60},
                {"max_tokens": 50, "temperature": 1.0, "seed": 3, "n": 2},
                {"max_tokens": 41, "temperature": 2.0, "seed": 4, "stream": True},
            )
        )
    ]


def is_valid(constraint, text: str) -> bool:
    if isinstance(constraint, JsonSchema):
        return Draft202012Validator(constraint.schema).is_valid(json.loads(text))
    if constraint.syntax == "lark":
        return sum_of(text)[1] == len(text)
    lines = [line.lstrip("> ") for line in text.splitlines(keepends=True)]
    return all(line.startswith("- ") and line.endswith("\n") and len(line) > 3 for line in lines)


def sum_of(text: str, start: int = 0) -> tuple[int, int]:
    """A sum and where it ends; fails where there is none."""
    total = 0
    while True:
        if text[start] == "(":
            number, end = sum_of(text, start + 1)
            assert text[end] == ")"
            start = end + 1
        else:
            end = start
            while text[end : end + 1].isdigit():
                end += 1
            number, start = int(text[start:end]), end
        total += number
        if text[start : start + 1] != "+":
            return total, start
        start += 1


def test_every_answer_is_valid_and_within_its_budget(constrained, call):
    requests = calls(call)
    for request, result in zip(requests, constrained().run(requests), strict=True):
        for output in result.outputs:
            assert is_valid(request.constraint, output.text), output.text
            assert len(output.ids) <= request.sampling.max_tokens


@pytest.mark.parametrize(
    "settings",
    [
        {"cache": False},
        {"chunk_tokens": 7},
        {"max_running": 1},
        {"retract_every": 2},
        {"jumps": False},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_runs_beside_does_not_change_the_answer(constrained, call, settings):
    assert texts(constrained(**settings).run(calls(call))) == texts(constrained().run(calls(call)))


def test_a_budget_below_the_shortest_answer_is_refused_with_both_numbers(constrained, call):
    (error,) = constrained().run([call("x", constraint=JsonSchema(TREE), max_tokens=20)])
    assert isinstance(error, InvalidCall)
    assert (error.field, error.value) == ("max_tokens", 20)
    least = '{"name":"","age":0,"children":[]}'
    assert f">= {len(least)}" in error.allowed


@pytest.mark.parametrize(
    "constraint, field",
    [
        (Grammar("start: ("), "grammar"),
        (Grammar('start: "a" <|end|>'), "grammar"),
        (Grammar("root ::= a", "gbnf"), "grammar"),
        (JsonSchema({"type": "array", "items": {"$ref": "#"}, "contains": {}}), "json_schema"),
    ],
)
def test_a_constraint_that_cannot_be_held_harms_no_other_call(constrained, call, constraint, field):
    bad, good = constrained().run([call("x", constraint=constraint), call("x", max_tokens=2)])
    assert isinstance(bad, InvalidCall)
    assert bad.field == field
    assert "\n" not in bad.allowed
    assert len(good.outputs[0].ids) == 2


def test_a_grammar_without_an_end_runs_to_its_length(constrained, call):
    (result,) = constrained().run([call("x", constraint=Grammar('start: "a" start'), max_tokens=9)])
    assert result.outputs[0].text == "a" * 9
    assert result.outputs[0].finish_reason == "length"


def test_a_schema_whose_automaton_would_be_too_large_is_a_grammar(constrained, call):
    field = {"type": "string", "pattern": "^(a|b)*a(a|b){14}$"}
    schema = {"properties": {f"f{index}": field for index in range(9)}, "required": ["f0"]}
    (result,) = constrained().run([call("x", constraint=JsonSchema(schema), max_tokens=60)])
    assert Draft202012Validator(schema).is_valid(json.loads(result.outputs[0].text))


SIZES = {"num_slots": 4096, "context_len": 512}


@pytest.fixture(scope="module")
def jumping() -> Iterator[LocalBackend]:
    with LocalBackend.from_folder("tiny", **SIZES) as backend:
        yield backend


@pytest.fixture(scope="module")
def plain() -> Iterator[LocalBackend]:
    with LocalBackend.from_folder("tiny", jumps=False, max_running=2, **SIZES) as backend:
        yield backend


def model_calls() -> list[Call]:
    return [
        Call(
            (Text(f"Mara is a {20 + index} year old baker from Tamlinford.\nJSON:"),),
            Sampling(max_tokens=50 + 10 * index, temperature=float(index % 2), seed=index),
            constraint=constraint,
        )
        for index in range(3)
        for constraint in CONSTRAINTS
    ]


def answers(backend: LocalBackend) -> list[Any]:
    replies = [backend.submit(call) for call in model_calls()]
    found = [reply.result(60).outputs[0] for reply in replies]
    backend.check()
    return found


def test_the_embedded_model_answers_the_same_with_jumps_and_without(
    jumping: LocalBackend, plain: LocalBackend
) -> None:
    found = answers(jumping)
    assert [output.ids for output in found] == [output.ids for output in answers(plain)]
    for call, output in zip(model_calls(), found, strict=True):
        assert is_valid(call.constraint, output.text), output.text
    assert jumping.info().counters["steps"] < plain.info().counters["steps"]
