"""Schemas as grammars: the same language as their patterns, and what no pattern says."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.grammar.ending import END
from forkroot.core.fsm.grammar.matcher import Library, Matcher
from forkroot.core.fsm.grammar.rules import schema_grammar
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.regex.errors import NotRegular
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

from ..json_schema.test_schema_samples import WORDS, simple_schema, some_instance

LIBRARY = Library(Vocabulary([bytes([byte]) for byte in range(256)], []))


def matcher_of(schema: Any) -> Matcher:
    return LIBRARY.compile(schema_grammar(schema), "json_schema")[1]


def accepts(matcher: Matcher, value: Any) -> bool:
    """Whether a matcher takes the compact text of a value, and nothing is missing after it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return bool(matcher.validate_tokens([*text, END]) == len(text) + 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_grammar_accepts_what_the_pattern_of_the_same_schema_accepts(seed: int) -> None:
    rng = random.Random(300 + seed)
    for _ in range(30):
        schema, other = simple_schema(rng), simple_schema(rng)
        pattern, matcher = re.compile(schema_pattern(schema)), matcher_of(schema)
        instances = [some_instance(rng, s) for s in (schema, schema, schema, other)]
        for value in (*instances, *WORDS, 0, -1, 10**6, 0.25, None, [], {}):
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            assert accepts(matcher, value) is bool(pattern.fullmatch(text)), (schema, text)


VALUES = (
    *(None, True, 0, -1.5, 7, "", "a", 'say "hi"\n', "é😀", [], [[]], [1, "a", None], {}),
    *({"a": 1}, {"a": "x", "b": [{}]}, {"b": 1}, {"a": {"a": {"a": None}}}, {"": 0}),
    *([{"a": 1}, {"a": "x"}], {"a": [1, [2]], "c": None}),
)
OPEN: list[Any] = [
    True,
    {},
    {"type": "object"},
    {"type": "array"},
    {"type": ["array", "null"], "maxItems": 1},
    {"type": "object", "required": ["a"]},
    {"type": "object", "minProperties": 1},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": {}, "type": "object"},
    {"type": "object", "additionalProperties": {"type": ["object", "array", "null"]}},
    {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
    {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "integer"}]},
    {"enum": [{"a": 1}, [[]], "a", 7, {}]},
    {"anyOf": [{"const": {"a": 1}}, {"type": "object", "required": ["a", "b"]}]},
    {"type": "string", "pattern": "^[^h]*$", "allOf": [{"pattern": "[aé]"}], "maxLength": 3},
    {"oneOf": [{"type": "object", "required": ["a"]}, {"type": "integer"}]},
    {"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 2},
    {"type": "array", "prefixItems": [{"type": "integer"}], "contains": {"type": "null"}},
]


@pytest.mark.parametrize("schema", OPEN, ids=json.dumps)
def test_what_no_pattern_expresses_is_accepted_as_the_schema_accepts_it(schema: Any) -> None:
    matcher, validator = matcher_of(schema), Draft202012Validator(schema)
    words = {"properties", "additionalProperties"} & set(schema if schema is not True else ())
    closed = words == {"properties"}
    for value in VALUES:
        is_closed_to = closed and isinstance(value, dict) and not set(value) <= {"a"}
        assert accepts(matcher, value) is (validator.is_valid(value) and not is_closed_to), value


def test_a_schema_that_no_value_meets_is_refused_by_the_place_that_is_the_cause() -> None:
    inner = {"properties": {"b": {"type": "string", "enum": [1]}}, "required": ["b"]}
    with pytest.raises(InvalidCall, match="at least one value satisfies") as caught:
        schema_grammar({"properties": {"a": inner}, "required": ["a"]})
    assert caught.value.value == "#/properties/a/properties/b"


def test_places_from_which_no_value_comes_are_left_out() -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    with pytest.raises(InvalidCall, match="at least one value satisfies"):
        schema_grammar(endless)
    matcher = matcher_of(
        {
            "$defs": {
                "endless": {"type": "array", "items": {"$ref": "#/$defs/endless"}, "minItems": 1}
            },
            "anyOf": [
                {"$ref": "#/$defs/endless"},
                {
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/endless"}, "b": {"const": 1}},
                },
            ],
        }
    )
    assert accepts(matcher, {"b": 1})
    assert matcher.validate_tokens(list(b"[")) == 0
    assert matcher.validate_tokens(list(b'{"a')) == 2


def test_tagged_options_that_lead_back_to_themselves_are_distinguished() -> None:
    pair = {"left": {"$ref": "#"}, "right": {"$ref": "#"}}
    schema = {
        "oneOf": [
            {
                "type": "object",
                "properties": {**pair, "op": {"const": op}},
                "required": [*pair, "op"],
            }
            for op in ("add", "mul")
        ]
        + [{"type": "number"}]
    }
    matcher = matcher_of(schema)
    inner = {"left": 1, "right": 2, "op": "mul"}
    assert accepts(matcher, {"left": inner, "right": 0.5, "op": "add"})
    assert not accepts(matcher, {"left": inner, "right": 0.5, "op": "sub"})


@pytest.mark.parametrize(
    "options, valid, invalid",
    [
        ([{}, {"type": "string"}], [1, None, {"b": 1}], ["a"]),
        (
            [{"type": "array", "minItems": 1}, {"type": "array", "items": {"type": "integer"}}],
            [["a"], [{}, "b"]],
            [[1], [1, 2]],
        ),
        (
            [{"type": "object"}, {"type": "object", "required": ["a"]}],
            [{}, {"b": 1}],
            [{"a": 1}, {"b": 1, "a": 1}],
        ),
        (
            [{"type": "object", "required": ["b"]}, {"type": "object", "required": ["a"]}],
            [{"b": 1}, {"a": 1}, {"a": 1, "c": 2}],
            [{"a": 1, "b": 1}, {"c": 1}],
        ),
        (
            [{"properties": {"a": {}}}, {"properties": {"a": {"type": "integer"}}}],
            [{"a": "x"}],
            [{"a": 1}, {}],
        ),
    ],
)
def test_one_of_open_options_takes_values_of_one_alone(
    options: list[Any], valid: list[Any], invalid: list[Any]
) -> None:
    matcher = matcher_of({"oneOf": options})
    assert [value for value in valid if not accepts(matcher, value)] == []
    assert [value for value in invalid if accepts(matcher, value)] == []


def test_one_of_reads_inside_the_options_of_properties() -> None:
    one = {"type": "object", "properties": {"t": {"const": 1}}}
    two = {"type": "object", "properties": {"t": {"const": 2}}, "required": ["t"]}
    other = {"type": "object", "properties": {"c": {"type": "integer"}}, "required": ["c"]}
    inner = {"oneOf": [one, two]}
    outer = [{"type": "object", "properties": {"k": k}, "required": ["k"]} for k in (other, inner)]
    matcher = matcher_of({"oneOf": outer})
    assert accepts(matcher, {"k": {"t": 2}})
    assert accepts(matcher, {"k": {"c": 1, "t": 3}})
    assert not accepts(matcher, {"k": {"c": 1, "t": 1}})
    assert not accepts(matcher, {"k": {"c": 1}})


def test_a_schema_as_deep_as_it_likes_is_a_grammar() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    with pytest.raises(NotRegular, match="levels"):
        schema_pattern(schema)
    matcher = matcher_of(schema)
    text = b'{"a":' * 200 + b"1" + b"}" * 200
    assert matcher.validate_tokens([*text, END]) == len(text) + 1


@pytest.mark.parametrize(
    "keyword, value",
    [
        *(("not", 3), ("dependentRequired", 3), ("dependentSchemas", [])),
        *(("dependencies", 3), ("unevaluatedItems", 3), ("unevaluatedProperties", 3)),
        *(("$dynamicRef", "#a"), ("$ref", "https://example.org/schema")),
    ],
)
def test_keywords_that_are_not_supported_are_refused_by_name(keyword: str, value: Any) -> None:
    schema = {
        "type": "array",
        "items": {"anyOf": [{"$ref": "#"}, {"type": "object", keyword: value}]},
    }
    with pytest.raises(InvalidCall) as caught:
        schema_grammar(schema)
    assert caught.value.field == "json_schema"
    assert caught.value.value == f"#/items/anyOf/1/{keyword}"


def test_annotations_change_nothing() -> None:
    noted = {
        **{"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c"},
        **{"deprecated": True, "readOnly": True, "x-order": 3},
    }
    assert schema_grammar({"type": "object", **noted}) == schema_grammar({"type": "object"})
