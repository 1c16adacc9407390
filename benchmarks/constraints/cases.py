"""Constraints of many kinds, each with a judge that knows nothing of how it is compiled.

Patterns are judged by `re.fullmatch`, schemas by `json` and `jsonschema`, the one grammar by the
parser of Python. Constraints that are not regular are separate.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.constraints.constraints import RECORD, patterns
from forkroot.core.api.protocol import Choices, Constraint, Grammar, JsonSchema, Regex

with needs("jsonschema"):
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError


class Case(NamedTuple):
    """A constraint and its judge."""

    name: str
    constraint: Constraint
    is_valid: Callable[[str], bool]


PATTERNS = {
    "record": RECORD,
    "date": r"(?a)\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
    "email": r"[a-z0-9._%+-]{1,20}@[a-z0-9-]{1,12}(\.[a-z]{2,4}){1,2}",
    "address": r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)",
    "hexadecimal": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "counters": r"([a-z]{1,40} ){2,9}\.",
    "unicode": r"[鱼水火é-ü😀-😎\w]{2,12}！[^\x00-\x7f]{1,3}",
    "cases": r"(?i)(yes|no|maybe)( please)?[.!]{0,3}",
    "lines": r".{0,30}\n---\n(?s:.{0,10})",
    "numbers": r"(?a)-?\d+(\.\d{1,3})?(,-?\d+(\.\d{1,3})?)*",
    "letters": r"((a|b)*c){2,5}d?",
    "react": r"(Thought: [^\n]{1,80}\nAction: (search|finish)\[[^\]\n]{1,30}\]\n){1,3}",
    "plain": r'[^"\\\x00-\x1f]{5,30}',
}
CHOICES = {
    "fifty long choices": patterns(Random(0))["choices"].split("|"),
    "choices in choices": ["a", "ab", "abc", "abc d", "é", "éé", "鱼", "鱼 or 😀", "ab\nc"],
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "house": {"enum": ["Gryffindor", "Slytherin", "Ravenclaw", "Hufflepuff"]},
    },
    "required": ["name", "age", "house"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "person": PERSON,
    "twenty fields": {
        "type": "object",
        "properties": {
            f"field_{i}": {"type": "string", "maxLength": 8} if i % 3 else {"type": "integer"}
            for i in range(20)
        },
        "required": [f"field_{i}" for i in range(20)],
        "additionalProperties": False,
    },
    "nested lists": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "minItems": 1,
        "maxItems": 4,
    },
    "enum of all types": {"enum": ["a", 'quo"te', 1, -2.5, None, True, [1, "x"], {"k": []}]},
    "bounds": {
        "type": "object",
        "properties": {
            "low": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25},
            "high": {"type": "integer", "exclusiveMinimum": 99, "maximum": 100_000},
        },
        "required": ["low", "high"],
        "additionalProperties": False,
    },
    "optional properties": {
        "type": "object",
        "properties": {f"part{i}": {"type": "boolean"} for i in range(6)},
        "required": ["part3"],
        "additionalProperties": False,
    },
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^x-[a-z]{1,5}$": {"type": "integer", "minimum": 0, "maximum": 9}},
        "additionalProperties": False,
    },
    "any of": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                "required": ["kind", "radius"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "box"}, "sides": {"$ref": "#/$defs/sides"}},
                "required": ["kind", "sides"],
                "additionalProperties": False,
            },
            {"type": "null"},
        ],
        "$defs": {"sides": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    },
    "references": {
        "$defs": {"person": PERSON},
        "type": "array",
        "items": {"$ref": "#/$defs/person"},
        "maxItems": 2,
    },
    "texts": {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
            "note": {"type": "string", "minLength": 3, "maxLength": 12},
            "free": {"type": "string"},
        },
        "required": ["code", "note", "free"],
        "additionalProperties": False,
    },
    "formats": {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date"},
            "host": {"type": "string", "format": "ipv4"},
            "id": {"type": "string", "format": "uuid"},
        },
        "required": ["day", "host", "id"],
        "additionalProperties": False,
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "string", "maxLength": 4}, {"type": "integer"}, {"const": "end"}],
        "items": False,
        "minItems": 2,
    },
    "all of": {
        "allOf": [
            {"type": "string", "minLength": 2},
            {"maxLength": 6},
            {"pattern": "^[a-z鱼]+$"},
        ]
    },
    "names in many scripts": {
        "type": "object",
        "properties": {"naïve": {"enum": ["é", "鱼", "😀"]}, 'a"b': {"type": "null"}},
        "required": ["naïve", 'a"b'],
        "additionalProperties": False,
    },
    "map": {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
    "small map": {"type": "object", "additionalProperties": {"const": 1}, "maxProperties": 2},
    "all different": {"type": "array", "items": {"enum": [1, "b", None]}, "uniqueItems": True},
}
OPEN_SCHEMAS: dict[str, Any] = {
    "tree": {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#"}},
        },
        "required": ["value", "children"],
        "additionalProperties": False,
    },
    "linked list": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    },
    "open object": {"type": "object"},
    "open field": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "extra": {"type": "object"}},
        "required": ["name", "extra"],
        "additionalProperties": False,
    },
    "list of anything": {"type": "array"},
}
SUMS = 'start: item (("+" | "*") item)*\nitem: /[0-9]{1,4}/ | "(" start ")"\n'


def regular() -> list[Case]:
    """Regular constraints."""
    return [
        *(Case(name, Regex(text), partial(_matches, text)) for name, text in PATTERNS.items()),
        *(Case(name, Choices(tuple(o)), frozenset(o).__contains__) for name, o in CHOICES.items()),
        *(_of_schema(name, schema) for name, schema in SCHEMAS.items()),
    ]


def others() -> list[Case]:
    """Constraints that are not regular."""
    sums = Case("sums in brackets", Grammar(SUMS), _is_sum)
    return [*(_of_schema(name, schema) for name, schema in OPEN_SCHEMAS.items()), sums]


def _of_schema(name: str, schema: dict[str, Any]) -> Case:
    checker = Draft202012Validator.FORMAT_CHECKER
    judge = Draft202012Validator(schema, format_checker=checker)
    return Case(name, JsonSchema(schema), partial(_fits, judge))


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _fits(judge: Draft202012Validator, text: str) -> bool:
    try:
        judge.validate(json.loads(text, parse_constant=_refuse))
    except (ValueError, ValidationError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def repeats_names(text: str) -> bool:
    """Whether this is JSON with an object in which a name comes twice. JSON allows that, and the
    last one counts; no regular language forbids it."""
    found = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    try:
        json.loads(text, object_pairs_hook=look)
    except ValueError:
        return False
    return any(found)


def _is_sum(text: str) -> bool:
    """Whether the text is one of the grammar's: its brackets as Python pairs them."""
    plain = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)
    if re.fullmatch(r"[0-9+*()]+", text) is None or re.search(r"[0-9]{5}|\(\)|[+*]{2}", text):
        return False
    try:
        tree = ast.parse(plain, mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        return False
    kinds = (ast.Expression, ast.BinOp, ast.Constant, ast.Add, ast.Mult)
    return all(isinstance(node, kinds) for node in ast.walk(tree))
