"""Constraints made to harm: each kind as a maker of one that is a little unlike all others."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from forkroot.core.api.protocol import Choices, Constraint, Grammar, JsonSchema, Regex

LARGE = 5_000_000


def deep_schema(number: int) -> Constraint:
    schema: dict[str, Any] = {"const": number}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}
    return JsonSchema(schema)


def large_schema(number: int) -> Constraint:
    names = [f"property {i} of {number}" for i in range(LARGE // 55)]
    return JsonSchema(
        {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": names[:3],
            "additionalProperties": False,
        }
    )


def wide_schema(number: int) -> Constraint:
    properties = {f"p{i}-{number}": {"type": "string"} for i in range(2_000)}
    return JsonSchema({"type": "object", "properties": properties, "additionalProperties": False})


def long_list(number: int) -> Constraint:
    return JsonSchema({"enum": list(range(number * 10**6, number * 10**6 + 100_000))})


def tangled_schema(number: int) -> Constraint:
    definitions = {
        f"n{i}": {
            "type": "object",
            "properties": {
                f"v{number}": {"type": "integer"},
                "c": {"type": "array", "items": {"$ref": f"#/$defs/n{(i + 1) % 60}"}},
            },
        }
        for i in range(60)
    }
    return JsonSchema({"$defs": definitions, "$ref": "#/$defs/n0"})


def many_rules(number: int) -> Constraint:
    rules = [f'r{i}: "x{i} {number}" r{(i + 1) % 200} | "e{i}"' for i in range(200)]
    return Grammar("\n".join(["start: r0", *rules]))


def many_choices(number: int) -> Constraint:
    random = Random(number)
    letters = "abcdefghijklmnopqrstuvwxyz é鱼"
    return Choices(tuple("".join(random.choices(letters, k=20)) for _ in range(5000)))


ATTACKS: dict[str, Callable[[int], Constraint]] = {
    "(a|b)*a(a|b){18}": lambda n: Regex(f"(a|b)*a(a|b){{18}}{n}"),
    "[a-z]{1,100000}": lambda n: Regex(f"[a-z]{{1,100000}}{n}"),
    "[a-z]{1,10000}": lambda n: Regex(f"[a-z]{{1,10000}}{n}"),
    "((a{1,40}){1,40}){1,40}": lambda n: Regex(f"((a{{1,40}}){{1,40}}){{1,40}}{n}"),
    "((a{1,9}b?){1,40}){1,40}": lambda n: Regex(f"((a{{1,9}}b?){{1,40}}){{1,40}}{n}"),
    "(\\w{1,60} ){1,60}": lambda n: Regex(f"(\\w{{1,60}} ){{1,60}}{n}"),
    "5,000 choices": many_choices,
    "10,000 brackets": lambda n: Regex("(" * 10_000 + f"a{n}" + ")" * 10_000),
    "a schema 10,000 deep": deep_schema,
    "a schema of 5 MB": large_schema,
    "a schema of 2,000 properties": wide_schema,
    "an enum of 100,000 numbers": long_list,
    "a recursive schema of 60 objects": tangled_schema,
    "a grammar of 200 rules": many_rules,
    "20,000 alternatives": lambda n: Regex("|".join(f"w{i} {n}" for i in range(20_000))),
    "a remote $ref": lambda n: JsonSchema({"$ref": f"https://example.com/{n}.json"}),
    "a pattern with broken text": lambda n: Regex(f"a{n}\udcff"),
    "a schema with broken text": lambda n: JsonSchema({"const": f"a{n}\udcff"}),
    "choices with broken text": lambda n: Choices((f"a{n}\udcff", "b")),
    "a schema that asks for much backtracking": lambda n: JsonSchema(
        {"type": "string", "pattern": f"^(([a-z])+.)+[A-Z]([a-z])+{n}$", "minLength": 200}
    ),
}
