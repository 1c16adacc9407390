"""Refusals name the place and the way out; schemas that some value meets are not refused for it."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidCall, JsonSchema, UnsupportedCall
from forkroot.core.fsm.json_schema.facts import Strings
from forkroot.core.fsm.json_schema.members import fits_string
from forkroot.core.fsm.regex.errors import InvalidSchema, UnsupportedSchema

from ..sampling import CONSTRAINTS, check_schema

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
MIXED = {"type": "array", "prefixItems": [TEXT], "items": WHOLE}
ONES = {**MIXED, "contains": {"const": 1}}
RECORD = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
PAIR = {"type": "object", "properties": {"a": WHOLE, "b": WHOLE}}
EITHER = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
FRUIT = {**TEXT, "enum": ["Äpfel", "Obst", "a\n", "x"]}


def containing(*schemas: Any) -> dict[str, Any]:
    return {"allOf": [{"contains": schema} for schema in schemas]}


def check(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    """As `check_schema`."""
    check_schema(schema, good, bad, Random(7), 100)


@pytest.mark.parametrize("limit", [2147483647, 4294967295, 9007199254740991, 1e15, 10**30])
def test_an_upper_limit_that_no_answer_reaches_limits_nothing(limit: float) -> None:
    check({**TEXT, "minLength": 1, "maxLength": limit}, ["a" * 20], [""])
    check({**TEXT, "pattern": "^a+$", "maxLength": limit}, ["aaa"], ["b"])
    check({"type": "array", "items": WHOLE, "maxItems": limit}, [[], [1, 2]], [["a"]])
    items = {"type": "array", "items": WHOLE, "contains": {"const": 1}}
    check({**items, "maxContains": limit}, [[1], [2, 1, 1]], [[2]])
    values = {"type": "object", "additionalProperties": WHOLE}
    check({**values, "minProperties": 1, "maxProperties": limit}, [{"x": 1}], [{}])
    check({"anyOf": [{"type": "null"}, {**TEXT, "not": {"maxLength": limit}}]}, [None], ["a"])


def test_two_contains_beside_first_items_are_looked_for_behind_these() -> None:
    one, two = {"const": 1}, {"const": 2}
    schema = {**MIXED, **containing(one, two), "maxItems": 5}
    check(schema, [["a", 1, 2], ["a", 2, 1, 3]], [["a", 1], [1, 2], ["a"]])
    check({**MIXED, **containing(one, {"const": "b"})}, [["b", 1], ["b", 1, 5]], [["a", 1]])
    lists = {"type": "array", "minItems": 2, "items": {"const": 1}}
    flags = {"type": "array", "items": {"type": "boolean"}}
    first = {"type": "array", "prefixItems": [lists], **containing(flags, {"const": "a"})}
    check(first, [[[1, 1], [], "a"]], [[[1, 1], []], [[], "a"]])
    many = {**MIXED, **containing(one, two, {"const": 3}, {"const": "a"})}
    check(many, [["a", 1, 2, 3]], [["a", 1, 2]])


def test_one_item_may_meet_two_contains() -> None:
    check({**MIXED, **containing({"const": 1}, WHOLE), "maxItems": 2}, [["a", 1]], [["a", 2]])
    nested = {"type": "array", "items": ONES, "contains": ONES}
    check(nested, [[["a", 1]], [["a", 1, 1]]], [[["a", 2]], []])
    lists = containing({"type": "array", "uniqueItems": True}, {"type": "array", "minItems": 2})
    check({"type": "array", **lists, "maxItems": 1}, [[[1, 2]]], [[[1, 1]], [[]]])


def test_items_that_are_contained_need_not_follow_each_other() -> None:
    schema = {"type": "array", "prefixItems": [WHOLE, TEXT, WHOLE], "items": WHOLE, "maxItems": 3}
    check({**schema, "contains": WHOLE, "minContains": 2}, [[1, "", 2]], [[1, ""]])


def test_values_of_an_enum_are_compared_with_a_pattern_one_by_one() -> None:
    check({**FRUIT, "pattern": "^[A-Z]"}, ["Obst"], ["Äpfel", "x"])
    check({**FRUIT, "not": {"pattern": "^[A-Z]"}}, ["Äpfel", "a\n", "x"], ["Obst"])
    check({**FRUIT, "pattern": "^[^A-Z]"}, ["Äpfel", "a\n", "x"], ["Obst"])
    check({**FRUIT, "pattern": "^(?!O)[^a-z]"}, ["Äpfel"], ["Obst", "x"])
    check(
        {"enum": [{"a": "Ö"}, {"a": "O"}], "properties": {"a": {"pattern": "O"}}}, [{"a": "O"}], []
    )


@pytest.mark.parametrize(
    "source", ["[A-Z]$", "^.{2}$", "Ä|b", r"^\S+$", r"\bx", "^[^a]*$", "(?i)Ö"]
)
def test_a_text_is_compared_as_python_does(source: str) -> None:
    random = Random(11)
    for _ in range(200):
        text = "".join(random.choice("aAÄ\n b\u2028x😀") for _ in range(random.randrange(4)))
        is_found = re.search(source, text) is not None
        for strings, expected in (
            (Strings(patterns=(source,)), is_found),
            (Strings(unlike=(source,)), not is_found),
        ):
            try:
                assert fits_string(strings, text) == expected, text
            except (InvalidSchema, UnsupportedSchema):
                continue


def test_a_type_that_is_stated_counts_more_than_one_that_keywords_are_about() -> None:
    never = {"if": {"type": "boolean"}, "then": {}, "else": {"maximum": 2}}
    check({**TEXT, **never}, ["a", ""], [1, True])
    check({"type": ["string", "integer"], **never}, ["a", 1], [3, True])
    check({**TEXT, "allOf": [never]}, ["a"], [1])
    check({**TEXT, "anyOf": [{"maximum": 2, "not": {"type": "boolean"}}]}, ["a"], [1])
    check({"enum": ["a", 1, 3], "maximum": 2, "not": {"type": "null"}}, ["a", 1], [3, None])
    check({**TEXT, "if": {"minLength": 3}, "else": {"maximum": 2}}, ["a", "abc"], [1])


@pytest.mark.parametrize(
    ("schema", "place", "message"),
    [
        ({**TEXT, "minLength": 2147483647}, "#/minLength", "from 0 to 1000000000"),
        ({**TEXT, "maxLength": -1}, "#/maxLength", "an integer of at least 0"),
        ({**TEXT, "maxLength": 1.5}, "#/maxLength", "an integer of at least 0"),
        (
            {**RECORD, "required": ["a", "b"]},
            "#/required",
            r"#/additionalProperties allows \('b' is not in properties beside it\)",
        ),
        (
            {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False}
            | {"allOf": [{"required": ["b"]}]},
            "#/allOf/0/required",
            "#/unevaluatedProperties allows .'b'",
        ),
        (
            {"allOf": [RECORD, {"properties": {"b": {}}, "required": ["b"]}]},
            "#/allOf/1/required",
            "#/allOf/0/additionalProperties allows .'b'",
        ),
        (
            {"type": "array", "items": {"$ref": "#/$defs/r"}, "minItems": 1}
            | {"$defs": {"r": {**RECORD, "required": ["b"]}}},
            "#/$defs/r/required",
            "#/.defs/r/additionalProperties allows .'b'",
        ),
        ({**PAIR, "required": ["a", "b"], **EITHER}, "#/oneOf", "not all required.*anyOf"),
        (
            {"type": "array", "items": WHOLE, "not": {"uniqueItems": True}},
            "#/not",
            "without uniqueItems: .* not supported .*enum",
        ),
        (
            {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "required": ["x"]}
            | {"$defs": {"x": {"type": "array", "items": WHOLE, "not": {"uniqueItems": True}}}},
            "#/$defs/x/not",
            "without uniqueItems",
        ),
        (
            {"type": "array", "contains": TEXT, "unevaluatedItems": False},
            "#/unevaluatedItems",
            "beside contains .* not supported",
        ),
        (
            {"type": "array", "prefixItems": [WHOLE], "contains": TEXT, "unevaluatedItems": False},
            "#/unevaluatedItems",
            "beside contains .* not supported",
        ),
        ({**FRUIT, "pattern": r"^\W"}, "#", r"in place of '\^\\\\W'.*'Äpfel'.*list characters"),
        (
            {**MIXED, **containing({"const": 1}, {"const": 2}), "maxItems": 2},
            "#",
            "at least one value satisfies",
        ),
    ],
)
def test_a_refusal_names_the_place_and_the_way_out(
    schema: dict[str, Any], place: str, message: str
) -> None:
    with pytest.raises((InvalidCall, UnsupportedCall), match=message) as caught:
        CONSTRAINTS.guide(JsonSchema(schema))
    assert str(caught.value).startswith(f"invalid json_schema={place!r}:")


def test_what_has_no_complement_is_left_out_beside_what_has() -> None:
    lists = {"type": "array", "items": WHOLE, "not": {"uniqueItems": True}}
    check({"anyOf": [lists, {"type": "null"}]}, [None], [[1, 2], [1]])


def test_names_that_one_option_of_two_requires_are_answered() -> None:
    check({**PAIR, "required": ["a"], **EITHER}, [{"a": 1}], [{"b": 1}, {"a": 1, "b": 2}])


def test_word_boundaries_are_honoured() -> None:
    check({**TEXT, "pattern": r"\bfoo\b"}, ["foo", "a foo.", "-foo-"], ["foot", "_foo", "äfoo"])
    check({**TEXT, "pattern": r"^a\Bb$"}, ["ab"], ["a b"])
