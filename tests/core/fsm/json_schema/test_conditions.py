"""Conditions on one property or on many, listed objects beside other keywords, and names that fit
one of many patterns."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest

from forkroot.core.api.protocol import JsonSchema
from forkroot.core.fsm.json_schema.patterns.ecma import read_pattern
from forkroot.core.fsm.json_schema.patterns.lookaround import is_in
from forkroot.core.fsm.json_schema.patterns.strings import holds

from ..sampling import CONSTRAINTS, check_schema, json_of, sampled, takes

KINDS = [f"k{i}" for i in range(16)]
TEXT = {"type": "string", "maxLength": 2}


def by_kind(*required: str) -> dict[str, Any]:
    """What may stand beside a property depends on its value."""
    rules = [
        {
            "if": {"properties": {"kind": {"const": kind}}},
            "then": {"properties": {f"of_{kind}": {"const": i}}, "required": [f"of_{kind}"]},
        }
        for i, kind in enumerate(KINDS)
    ]
    properties = {"kind": {"enum": KINDS}, **{f"of_{kind}": {"type": "integer"} for kind in KINDS}}
    return {"type": "object", "properties": properties, "required": [*required], "allOf": rules}


def independent(num_flags: int) -> dict[str, Any]:
    """Each of many flags asks for a property of its own."""
    flags = [f"f{i}" for i in range(num_flags)]
    rules = [
        {
            "if": {"properties": {flag: {"const": True}}, "required": [flag]},
            "then": {"required": [f"{flag}_why"]},
        }
        for flag in flags
    ]
    properties = {name: kind for flag in flags for name, kind in pair(flag)}
    return {"type": "object", "properties": properties, "allOf": rules}


def pair(flag: str) -> list[tuple[str, dict[str, Any]]]:
    return [(flag, {"type": "boolean"}), (f"{flag}_why", TEXT)]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            by_kind("kind"),
            [{"kind": "k7", "of_k7": 7}, {"kind": "k15", "of_k3": 5, "of_k15": 15}],
            [{"kind": "k7"}, {"kind": "k7", "of_k7": 8}, {"kind": "k7", "of_k8": 8}],
        ),
        (
            independent(14),
            [{}, {"f3": False}, {"f3": True, "f3_why": "a"}, {"f13": False, "f13_why": "a"}],
            [{"f3": True}, {"f3": True, "f4_why": "a"}, {"f3": 1}],
        ),
        (
            {
                "enum": [{"a": 1}, {"a": "x"}, {"b": [1, 1]}, [1, 2], [1, 1], "a", None],
                "properties": {"a": {"type": "integer"}, "b": {"uniqueItems": True}},
                "uniqueItems": True,
                "contains": {"const": 2},
            },
            [{"a": 1}, [1, 2], "a", None],
            [{"a": "x"}, {"b": [1, 1]}, [1, 1]],
        ),
        (
            {
                "oneOf": [
                    {"enum": [{"type": "void"}, {"type": "any"}]},
                    {
                        "type": "object",
                        "properties": {"type": {"enum": ["int", "any"]}},
                        "required": ["type"],
                        "additionalProperties": False,
                    },
                ]
            },
            [{"type": "void"}, {"type": "int"}],
            [{"type": "any"}],
        ),
        (
            {
                "type": "object",
                "patternProperties": {f"^(x{i}|X{i})$": {"const": i} for i in range(12)},
                "additionalProperties": False,
            },
            [{"x3": 3}, {"X11": 11}, {}],
            [{"x3": 4}, {"x12": 12}, {"x11": 1}],
        ),
    ],
)
def test_answers_keep_to_all_of_many_conditions(
    schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    check_schema(schema, good, bad, Random(3), 200)


@pytest.mark.parametrize(
    ("source", "text"),
    [(r"^(?<!-)\d", "b1"), ("^(?<!a)b", "1b"), ("^a*(?<!b)c", "xc"), ("^(?<!a)$", "b")],
)
def test_lookbehind_moves_no_anchored_pattern(source: str, text: str) -> None:
    assert not holds(read_pattern(source), text) and not is_in(source, text)
    assert holds(read_pattern(source), text[1:]) and is_in(source, text[1:])


def test_a_line_break_before_the_end_counts_where_a_match_is_excluded() -> None:
    schema = {"type": "string", "not": {"pattern": r"a(?!b)\w?$"}}
    guide = CONSTRAINTS.guide(JsonSchema(schema))
    assert [it for it in ("a", "a\n", "ab", "ac\n", "b") if takes(guide, json_of(it))] == [
        "ab",
        "b",
    ]


def test_a_password_of_many_demands_and_a_length_is_an_automaton() -> None:
    demands = r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)(?=.*[^\w\s]).+$"
    schema = {"type": "string", "pattern": demands, "minLength": 8, "maxLength": 24}
    guide = CONSTRAINTS.guide(JsonSchema(schema))
    texts = ["Passw0rd!", "passw0rd!", "Password!", "Passw0rdX", "Pw0!", "Passw0rd!" * 3]
    assert [it for it in texts if takes(guide, json_of(it))] == ["Passw0rd!"]
    validator = jsonschema.Draft202012Validator(schema)
    for text in sampled(guide, Random(5), 4, 120):
        assert validator.is_valid(json.loads(text)), text
