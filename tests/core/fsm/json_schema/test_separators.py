"""JSON with blanks after its commas and colons, where a caller asks for them."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from forkroot.core.api.protocol import Call, InvalidCall, JsonSchema, Text
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.grammar.ending import END
from forkroot.core.fsm.grammar.grammar import GrammarGuide
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.grammar.rules import schema_grammar
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.tokens.regular import RegularGuide
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

from .test_schema_samples import simple_schema, some_instance

SPACED = (", ", ": ")
PAIRS = [SPACED, (",", ": "), (" ,\n\t", "\r: ")]
BYTES = [bytes([byte]) for byte in range(256)]
LIBRARY = Library(Vocabulary(BYTES, []))
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "parts": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["id", "parts"],
}
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "one": {"const": {"a": [1, "b, c: d"]}},
        "two": {"type": "array", "items": {"enum": [1, [2, 3]]}, "minItems": 2, "maxItems": 2},
    },
    "required": ["one", "two"],
    "additionalProperties": False,
}


def taken(schema: Any, separators: tuple[str, str], text: str) -> bool:
    """Whether the grammar of a schema takes a text as a whole."""
    matcher = LIBRARY.compile(schema_grammar(schema, separators), "json_schema")[1]
    data = text.encode()
    return bool(matcher.validate_tokens([*data, END]) == len(data) + 1)


@pytest.mark.parametrize("separators", PAIRS)
def test_instances_are_written_with_these_separators_and_no_others(
    separators: tuple[str, str],
) -> None:
    rng = random.Random(1)
    for _ in range(25):
        schema = simple_schema(rng)
        pattern = re.compile(schema_pattern(schema, separators=separators))
        value = some_instance(rng, schema)
        text = json.dumps(value, ensure_ascii=False, separators=separators)
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        is_valid = bool(re.fullmatch(schema_pattern(schema), compact))  # or rounded out of bounds
        assert bool(pattern.fullmatch(text)) is is_valid, (schema, text)
        assert taken(schema, separators, text) is is_valid
        if compact != text:
            assert not pattern.fullmatch(compact)
            assert not taken(schema, separators, compact)


def test_constant_objects_have_them_too_and_texts_are_left_alone() -> None:
    text = '{"one": {"a": [1, "b, c: d"]}, "two": [[2, 3], 1]}'
    assert re.fullmatch(schema_pattern(NESTED, separators=SPACED), text)
    assert taken(NESTED, SPACED, text)


def test_recursion_and_open_values_have_them_too() -> None:
    assert taken(TREE, SPACED, '{"id": 1, "parts": [{"id": 2, "parts": []}]}')
    assert not taken(TREE, SPACED, '{"id": 1, "parts": [{"id":2, "parts": []}]}')
    assert taken(True, SPACED, '[1, {"a": "b"}]')
    assert not taken(True, SPACED, '[1,{"a": "b"}]')


def test_the_same_schema_with_other_separators_is_another_guide() -> None:
    made = Constraints(BYTES, [], lambda text: list(text.encode()))
    compact, spaced = (made.guide(it) for it in (JsonSchema(NESTED), JsonSchema(NESTED, SPACED)))
    assert isinstance(compact, RegularGuide) and isinstance(spaced, RegularGuide)
    assert compact.cursor().forced() == b'{"one":{"a":[1,"b, c: d"]},"two":['
    assert spaced.cursor().forced() == b'{"one": {"a": [1, "b, c: d"]}, "two": ['
    assert made.guide(JsonSchema(NESTED, SPACED)) is spaced
    assert isinstance(made.guide(JsonSchema(TREE, SPACED)), GrammarGuide)
    assert made.guides.num_compiled == 3


@pytest.mark.parametrize(
    "separators",
    [
        (";", ":"),
        (",",),
        (",", ":", ""),
        ("", ": "),
        [",", ":"],
        ", ",
        None,
        (", " + " " * 16, ":"),
    ],
)
def test_separators_that_are_none_are_refused_by_name(separators: Any) -> None:
    with pytest.raises(InvalidCall, match="a comma and a colon") as caught:
        Call((Text("a"),), constraint=JsonSchema({}, separators)).check()
    assert caught.value.field == "separators"
    assert caught.value.value == separators


def test_up_to_sixteen_blanks_of_any_kind_are_allowed() -> None:
    Call((Text("a"),), constraint=JsonSchema({}, ("," + " " * 16, "\t:\n\r "))).check()
