"""References to documents that are not here: what needs them is left out or refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from forkroot.core.api.protocol import CallFailed, InvalidCall, JsonSchema
from forkroot.core.fsm.constraints import Constraints

TOKENS = [*(bytes([byte]) for byte in range(256)), b"<end>"]
CONSTRAINTS = Constraints(TOKENS, [256], lambda text: list(text.encode()))
AWAY = {"$ref": "https://schemas.example/other.json#/definitions/x"}
TEXT = {"type": "string"}
CLOSED = {"type": "object", "additionalProperties": False}


def accepts(schema: Any, text: str) -> bool:
    try:
        return CONSTRAINTS.guide(JsonSchema(schema)).cursor().after(text.encode()).is_accepting
    except CallFailed:
        return False


def test_a_property_that_need_not_be_there_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    schema = {**CLOSED, "properties": {"a": AWAY, "b": TEXT}}
    with caplog.at_level(logging.WARNING, "forkroot.constraints"):
        assert accepts(schema, '{"b":"x"}') and accepts(schema, "{}")
    assert "#/properties/a/$ref" in caplog.text
    assert not accepts(schema, '{"a":1}') and not accepts(schema, '{"a":null,"b":"x"}')


@pytest.mark.parametrize(
    "schema, pointer",
    [
        (AWAY, "#/$ref"),
        ({**CLOSED, "properties": {"a": AWAY}, "required": ["a"]}, "#/properties/a/$ref"),
        ({"type": "string", "not": AWAY}, "#/not/$ref"),
        ({"type": "string", "allOf": [AWAY]}, "#/allOf/0/$ref"),
        ({"type": "array", "items": AWAY, "minItems": 1}, "#/items/$ref"),
        ({"type": "string", "if": AWAY, "then": {"minLength": 2}}, "#/if/$ref"),
    ],
)
def test_what_always_needs_the_document_is_refused_with_its_place(
    schema: Any, pointer: str
) -> None:
    with pytest.raises(InvalidCall) as caught:
        CONSTRAINTS.guide(JsonSchema(schema))
    assert pointer in str(caught.value) and "put it under $defs" in str(caught.value)


def test_strict_schemas_are_refused_wherever_the_reference_stands() -> None:
    schema = {**CLOSED, "properties": {"a": AWAY, "b": TEXT}}
    with pytest.raises(InvalidCall, match=r"#/properties/a/\$ref"):
        CONSTRAINTS.guide(JsonSchema(schema, strict=True))


def test_other_options_remain_and_no_value_that_the_document_may_allow_takes_two() -> None:
    assert accepts({"anyOf": [AWAY, TEXT]}, '"x"')
    assert not accepts({"anyOf": [AWAY, TEXT]}, "1")
    with pytest.raises(InvalidCall):
        CONSTRAINTS.guide(JsonSchema({"oneOf": [AWAY, TEXT]}))


def test_nothing_is_said_of_values_that_a_condition_away_decides() -> None:
    away = {"if": AWAY, "then": {"const": "x"}, "else": {"const": "y"}}
    schema = {**CLOSED, "properties": {"a": {**TEXT, **away}, "b": TEXT}}
    assert accepts(schema, '{"b":"x"}')
    assert not accepts(schema, '{"a":"x"}') and not accepts(schema, '{"a":"y"}')
