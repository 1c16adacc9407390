"""The shortest text of each rule, by its definition."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from forkroot.core.api.protocol import Grammar, JsonSchema
from forkroot.core.fsm.grammar.lark import read_grammar
from forkroot.core.fsm.grammar.shortest import shortest_texts
from forkroot.core.fsm.guide import Cursor

from ..sampling import CONSTRAINTS, TOKENS

RULES = {
    'start: "ab" | "c"': "c",
    'start: "a" "b"? "c"*': "a",
    'start: "a"+ ("b" | "cc")': "ab",
    "start: A B\nA: /x{3}|yy/\nB: /[a-z]*z/": "yyz",
    'start: "(" start ")" | "x" "y" "z" | other\nother: /[0-9]+/': "0",
    'start: pair{3}\npair: "a" ["," "b"]': "aaa",
    'start: pair{2,3}\npair: "ab"': "abab",
    'start: "a".."f" "x"i -> name\n    | "long"': "ax",
    '?start: other\nother: "o" // a remark\n%ignore " "': "o",
    'start: both\nboth: start "," start | /k\\/v/': "k/v",
}
HIDDEN: list[dict[str, Any]] = [  # what an answer needs is nothing that other texts lead to
    {"type": "array", "items": {}, "contains": {"type": "array", "minItems": 3}},
    {"type": "array", "items": {}, "contains": {"const": "a"}},
    {
        "items": {},
        "contains": {"type": "number", "minimum": 3, "multipleOf": 1.5},
        "minContains": 2,
    },
    {"type": "object", "properties": {"x": {}}, "patternProperties": {"1$": {"type": "null"}}},
    {"$ref": "#/$defs/n", "$defs": {"n": {"patternProperties": {"_n$": {"$ref": "#/$defs/n"}}}}},
    {"properties": {"a": {"type": "string", "pattern": "_id$"}, "b": {}}, "required": ["a", "b"]},
    {
        "properties": {"a": {"pattern": r"^\S+@\S+\.\S+$"}, "b": {"type": "object"}},
        "required": ["a"],
    },
    {"patternProperties": {r"\.json$": {}}, "additionalProperties": False, "minProperties": 1},
]


@pytest.mark.parametrize("source", RULES)
def test_the_shortest_text_of_a_grammar(source: str) -> None:
    assert shortest_texts(read_grammar(source, "lark"))["start"] == RULES[source]
    cursor = CONSTRAINTS.guide(Grammar(source)).cursor()
    assert cursor.after(RULES[source].encode()).is_accepting


@pytest.mark.parametrize("source", ["start: start start", "start: A & B\nA: /a/\nB: /b/"])
def test_a_rule_of_which_nothing_is_known_has_no_text(source: str) -> None:
    assert "start" not in shortest_texts(read_grammar(source, "lark"))


def drawn(cursor: Cursor, budget: int, random: Random) -> str | None:
    """An answer of random bytes, as an engine draws them; None: it was cut off."""
    data = b""
    while not cursor.is_finished and budget > 0:
        bits = np.unpackbits(cursor.mask_within(budget).view(np.uint8), bitorder="little")
        token = random.choice(np.flatnonzero(bits).tolist())
        if cursor.fits(token, budget):
            cursor.advance(token)
            budget -= 1
            data += TOKENS[token]
    return data.decode() if cursor.is_finished or cursor.is_accepting else None


@pytest.mark.parametrize("schema", HIDDEN, ids=range(len(HIDDEN)))
def test_an_answer_ends_within_its_budget_although_its_end_is_hidden(schema: Any) -> None:
    guide, validator = CONSTRAINTS.guide(JsonSchema(schema)), Draft202012Validator(schema)
    for seed in range(8):
        text = drawn(guide.cursor(), 60 + 10 * seed, Random(seed))
        assert text is not None
        validator.validate(json.loads(text))
