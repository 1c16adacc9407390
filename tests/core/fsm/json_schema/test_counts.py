"""minProperties and maxProperties: every choice of properties that fits, and no name twice."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from forkroot.core.api.protocol import CallFailed, InvalidCall, JsonSchema
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.guide import Guide
from forkroot.core.fsm.json_schema.schema import schema_pattern

from .test_distinct import TOKENS, drawn

MORE = [b'":', b'":0', b'":0,"', b',"a":', b'{"a"', b'{"a":0,"a":0}']
WORDS = [*TOKENS[:-1], *MORE, TOKENS[-1]]
CONSTRAINTS = Constraints(TOKENS, [len(TOKENS) - 1], lambda text: list(text.encode()))
WORDY = Constraints(WORDS, [len(WORDS) - 1], lambda text: list(text.encode()))
ONE = {"type": "integer", "minimum": 0, "maximum": 1}
NAMED = {"type": "object", "properties": dict.fromkeys("abcd", ONE), "additionalProperties": False}
OPEN = {"type": "object", "additionalProperties": ONE}
BOTH = {"type": "object", "properties": {"a": ONE, "b": ONE}, "additionalProperties": ONE}
TREE = {"type": "object", "additionalProperties": {"$ref": "#"}}


def guide_of(schema: dict[str, Any]) -> Guide:
    return WORDY.guide(JsonSchema(schema))


def accepts(schema: dict[str, Any], text: str) -> bool:
    try:
        return guide_of(schema).cursor().after(text.encode()).is_accepting
    except CallFailed:
        return False


@pytest.mark.parametrize("low, high", [(0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, None), (2, 4)])
def test_any_choice_of_named_properties_may_be_made(low: int, high: int | None) -> None:
    schema = {**NAMED, "minProperties": low} | ({} if high is None else {"maxProperties": high})
    for size in range(5):
        for names in combinations("abcd", size):
            text = json.dumps(dict.fromkeys(names, 0), separators=(",", ":"))
            assert accepts(schema, text) == (low <= size <= (4 if high is None else high)), text


def test_required_properties_count_too() -> None:
    schema = {**NAMED, "required": ["c"], "minProperties": 2, "maxProperties": 2}
    assert accepts(schema, '{"a":0,"c":1}') and accepts(schema, '{"c":0,"d":1}')
    assert not accepts(schema, '{"c":0}') and not accepts(schema, '{"a":0,"b":0,"c":1}')
    assert not accepts(schema, '{"a":0,"b":0}')


def test_open_names_count_once_each() -> None:
    schema = {**OPEN, "minProperties": 2}
    assert accepts(schema, '{"x":0,"y":1}') and accepts(schema, '{"x":0,"xx":1,"y":1}')
    assert not accepts(schema, '{"x":0}') and not accepts(schema, '{"x":0,"x":1}')
    assert not accepts(schema, '{"x":0,"y":0,"x":1}')


def test_open_names_count_beside_those_that_are_named() -> None:
    schema = {**BOTH, "minProperties": 3, "maxProperties": 4}
    assert accepts(schema, '{"b":0,"x":1,"y":1}') and accepts(schema, '{"a":0,"b":0,"x":1}')
    assert not accepts(schema, '{"a":0,"x":1}') and not accepts(schema, '{"x":0,"y":0,"x":1}')
    assert not accepts(schema, '{"a":0,"b":0,"x":1,"y":1,"z":0}')


@pytest.mark.parametrize(
    "schema",
    [
        {**OPEN, "minProperties": 2},
        {**BOTH, "minProperties": 3},
        {**OPEN, "minProperties": 2, "maxProperties": 2},
        {**TREE, "maxProperties": 2},
        {"anyOf": [{**OPEN, "minProperties": 3}, {"type": "array", "items": OPEN}]},
        {"type": "array", "minItems": 2, "items": {**OPEN, "minProperties": 2}},
        {"type": "object", "not": {"maxProperties": 1}, "additionalProperties": ONE},
        {**OPEN, "patternProperties": {"^[xy]$": ONE}, "additionalProperties": False}
        | {"minProperties": 2},
    ],
    ids=range(8),
)
def test_every_answer_has_as_many_properties_as_asked(schema: dict[str, Any]) -> None:
    rng, guide = random.Random(3), CONSTRAINTS.guide(JsonSchema(schema))
    validator = Draft202012Validator(schema)
    for _ in range(3):
        text = drawn(guide.cursor(), 40, rng)
        assert validator.is_valid(json.loads(text)), text


def test_tokens_that_hold_a_name_twice_are_left_out() -> None:
    schema = {**OPEN, "minProperties": 2}
    cursor = guide_of(schema).cursor()
    assert not cursor.mask()[WORDS.index(MORE[-1]) // 32] >> WORDS.index(MORE[-1]) % 32 & 1
    after = cursor.after(b'{"a":0')
    repeat = WORDS.index(b',"a":')
    assert not after.mask()[repeat // 32] >> repeat % 32 & 1


def test_alone_a_pattern_counts_open_names_once() -> None:
    pattern = schema_pattern({**BOTH, "minProperties": 3})
    assert '"a"' in pattern
    with pytest.raises(InvalidCall, match="one more than are named"):
        schema_pattern({**OPEN, "minProperties": 2})


def test_a_count_that_nothing_can_meet_is_refused() -> None:
    with pytest.raises(InvalidCall, match="at least one value satisfies"):
        guide_of({**NAMED, "minProperties": 5})
