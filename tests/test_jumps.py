"""Forced runs on the embedded model: fewer passes, the same tokens, and these canonical."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from forkroot.core.api.protocol import Call, Completion, JsonSchema, Regex, Sampling, Text
from forkroot.core.local import LocalBackend

RECORD = (
    r'\{"name":"[A-Z][a-z]{1,12}","age":[1-9][0-9]?,"job":"[a-z]{3,10}",'
    r'"house":"(Gryffindor|Slytherin|Ravenclaw|Hufflepuff)"\}'
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SIZES = {"num_slots": 4096, "context_len": 512}


def calls() -> list[Call]:
    return [
        Call(
            (Text(f"Mara is a {20 + index} year old baker from Tamlinford.\nJSON:"),),
            Sampling(max_tokens=80, temperature=float(index % 2), seed=index),
            constraint=constraint,
            stream=index % 3 == 0,
        )
        for index in range(4)
        for constraint in (Regex(RECORD), JsonSchema(SCHEMA))
    ]


def answers(backend: LocalBackend, requested: list[Call]) -> list[Completion]:
    replies = [backend.submit(call) for call in requested]
    found = [reply.result(60) for reply in replies]
    for reply, completion in zip(replies, found, strict=True):
        if reply.call.stream:
            chunks = list(reply)
            assert "".join(chunk.text for chunk in chunks) == completion.text
            assert sum((chunk.ids for chunk in chunks), ()) == completion.outputs[0].ids
    backend.check()
    return found


@pytest.fixture(scope="module")
def jumping() -> Iterator[LocalBackend]:
    with LocalBackend.from_folder("tiny", **SIZES) as backend:
        yield backend


@pytest.fixture(scope="module")
def plain() -> Iterator[LocalBackend]:
    with LocalBackend.from_folder("tiny", jumps=False, max_running=2, **SIZES) as backend:
        yield backend


def test_jumps_change_the_passes_and_not_the_answers(
    jumping: LocalBackend, plain: LocalBackend
) -> None:
    one_by_one = [replace(call, stream=False) for call in calls()[:2]]
    for call in one_by_one:
        before = [backend.info().counters["steps"] for backend in (jumping, plain)]
        fast, slow = answers(jumping, [call])[0], answers(plain, [call])[0]
        assert fast.outputs[0].ids == slow.outputs[0].ids
        steps = [
            backend.info().counters["steps"] - start
            for backend, start in zip((jumping, plain), before, strict=True)
        ]
        assert steps[0] < steps[1]
    together = [c.outputs[0].ids for c in answers(jumping, calls())]
    assert together == [c.outputs[0].ids for c in answers(plain, calls())]


def test_answers_are_valid_and_their_tokens_canonical(jumping: LocalBackend) -> None:
    for call, completion in zip(calls(), answers(jumping, calls()), strict=True):
        text = completion.text
        if isinstance(call.constraint, Regex):
            assert re.fullmatch(RECORD, text)
            assert list(completion.outputs[0].ids) == jumping.tokenizer.encode(text)
        else:
            assert {"name", "age"} <= set(json.loads(text)) <= {"name", "age", "tags"}


def test_a_jump_goes_up_to_the_next_choice_where_no_token_can_join_it(
    jumping: LocalBackend,
) -> None:
    pattern = r'\{"alive":(true|false),"blood":"(pure|half)","house":"(red|green)"\}'
    call = replace(calls()[0], constraint=Regex(pattern), stream=False)
    before = jumping.info().counters
    output = answers(jumping, [call])[0].outputs[0]
    after = jumping.info().counters
    assert after["sampled_tokens"] - before["sampled_tokens"] == 3
    assert after["steps"] - before["steps"] == 3
    assert list(output.ids) == jumping.tokenizer.encode(output.text)


def test_log_probabilities_go_with_every_token_of_a_forced_run(jumping: LocalBackend) -> None:
    call = calls()[0]
    wanted = replace(call, stream=False, sampling=replace(call.sampling, logprobs=1))
    output = answers(jumping, [wanted])[0].outputs[0]
    assert output.ids == answers(jumping, [call])[0].outputs[0].ids
    assert [entry.id for entry in output.logprobs] == list(output.ids)
