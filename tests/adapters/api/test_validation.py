"""The validator of answers agrees with the package jsonschema, on all pairs of these."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from forkroot.adapters.api.validation import validation_error

NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
SCHEMAS: list[Any] = [
    *(True, False, {}, {"type": "string"}, {"type": ["integer", "null"]}, {"type": "number"}),
    *({"enum": [1, "a", None, [1], {"a": 1}]}, {"const": True}, {"const": 1.0}, {"not": {}}),
    *({"minimum": 1}, {"exclusiveMaximum": 2}, {"multipleOf": 0.5}, {"multipleOf": 3}),
    *({"minLength": 1, "maxLength": 2}, {"pattern": "^a+$"}, {"required": ["a"]}),
    *({"minItems": 1, "maxItems": 2}, {"uniqueItems": True}, {"items": {"type": "integer"}}),
    {"prefixItems": [{"type": "integer"}], "items": False},
    {"contains": {"const": 1}, "minContains": 2},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
    {"propertyNames": {"maxLength": 1}, "minProperties": 1, "maxProperties": 1},
    {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["a"]}}},
    {"anyOf": [{"type": "string"}, {"minimum": 1}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"allOf": [{"type": "integer"}, {"maximum": 1}]},
    {"if": {"type": "integer"}, "then": {"minimum": 2}, "else": {"type": "string"}},
    {"$defs": {"a/b": {"type": "integer"}}, "$ref": "#/$defs/a~1b"},
    NODE,
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 2, 1.5, -3, "", "a", "aa", "abc", [], [1], [1, 1.0], [True, 1]),
    *([1, "a", None], {}, {"a": 1}, {"b": None}, {"a": "x", "b": 2}, {"ab": 1}, {"next": {}}),
    *({"next": {"next": {"other": 1}}}, [[1], [1]], [{"a": 1}, {"a": 1.0}]),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_values_are_valid_where_jsonschema_says_so(schema: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    known = jsonschema.Draft202012Validator(schema)
    found = [validation_error(value, schema) is None for value in VALUES]
    assert found == [known.is_valid(value) for value in VALUES]


def test_an_error_names_the_value_and_what_is_expected() -> None:
    schema = {"properties": {"a": {"items": {"maximum": 3}}}}
    assert validation_error({"a": [1, 7]}, schema) == "#/a/1 is 7; expected at most 3"


def test_a_reference_without_an_end_is_no_endless_loop() -> None:
    schema = {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    }
    assert validation_error(1, schema) is None


def test_every_pair_was_tried() -> None:
    pairs = list(itertools.product(SCHEMAS, VALUES))
    assert sum(validation_error(value, schema) is None for schema, value in pairs) > 100
