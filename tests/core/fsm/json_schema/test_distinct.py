"""uniqueItems: no answer repeats an item, and no answer gets stuck because all items were used."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from forkroot.core.api.protocol import CallFailed, InvalidCall, JsonSchema
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.distinct import DistinctCursor
from forkroot.core.fsm.guide import Cursor, Guide

TEXTS = [b'","', b'"]', b'a"', b"0,0", b"[1,", b"true", b"true,", b'"a"', b'"a', b',"a"']
BLANK = [b" " + rest for rest in (b"t", b"tr", b"f", b"n", b'"a', b"1", b"12", b"[", b"{", b" ")]
BLANK += [b", ", b", t", b",  "]
TOKENS = [*(bytes([byte]) for byte in range(256)), *TEXTS, *BLANK, b"<end>"]
END = len(TOKENS) - 1
CONSTRAINTS = Constraints(TOKENS, [END], lambda text: list(text.encode()))
UNIQUE: dict[str, Any] = {"type": "array", "uniqueItems": True}
CLOSED = {"type": "object", "additionalProperties": False}
RECORD = {"properties": {"k": {"enum": ["a", "b"]}, "v": {"type": "boolean"}}, "required": ["k"]}
TREE = {
    "$defs": {
        "n": {
            "type": "object",
            "properties": {
                "n": {"type": "string"},
                "c": {**UNIQUE, "items": {"$ref": "#/$defs/n"}},
            },
            "required": ["n", "c"],
        }
    },
    "$ref": "#/$defs/n",
}
PART = {"type": "number", "minimum": 0, "maximum": 1}
SHORT = {"type": "string", "maxLength": 1}
SCHEMAS: list[dict[str, Any]] = [
    {**UNIQUE, "items": {"type": "boolean"}},
    {**UNIQUE, "items": {"type": "string"}, "minItems": 3},
    {**UNIQUE, "items": {"type": "integer", "minimum": 0, "maximum": 3}, "minItems": 3},
    {**UNIQUE, "prefixItems": [{"enum": ["a", "b"]}, {"const": "a"}], "items": False},
    {**UNIQUE, "items": {"type": "object", **RECORD}, "minItems": 4},
    {"uniqueItems": True},
    {**UNIQUE, "items": {**UNIQUE, "items": {"enum": [1, 2, 3]}}, "minItems": 2},
    TREE,
    {**UNIQUE, "items": {"type": ["boolean", "null"]}},
    {"patternProperties": {"_s$": {"type": "integer"}}, "minProperties": 2, **CLOSED},
    {**UNIQUE, "items": {"properties": {"d": PART}, "required": ["d"], **CLOSED}},
    {**UNIQUE, "items": {"type": "array", "prefixItems": [PART, PART], "minItems": 2}},
    {**UNIQUE, "items": {"properties": {"l": SHORT, "d": PART}, "required": ["d"], **CLOSED}},
    {**UNIQUE, "items": {"enum": [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, []]}, "minItems": 2},
    {**UNIQUE, "items": {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 1}},
    {**UNIQUE, "items": {**SHORT, "pattern": '^["\\\\é]*$'}, "minItems": 3},
    {**UNIQUE, "items": {"patternProperties": {"^[pq]$": {}}, **CLOSED}, "minItems": 3},
    {**UNIQUE, "items": {"type": "integer", "minimum": 1, "maximum": 12}, "minItems": 12},
    {**UNIQUE, "prefixItems": [{"const": 1}], "items": True, "minItems": 3, "maxItems": 4},
    {**UNIQUE, "items": {**UNIQUE, "items": {"type": "boolean"}, "minItems": 2}, "minItems": 2},
    {**UNIQUE, "items": {**UNIQUE, "items": {"enum": [1, 2, 3]}, "minItems": 3}, "minItems": 2},
    {"type": "array", "items": {**UNIQUE, "items": {"const": 1}, "contains": {}, "minItems": 2}},
    {**UNIQUE, "items": {"enum": [0, 1]}, "prefixItems": [{"type": "string"}], "minItems": 2},
    {"properties": {"a": {}}, "patternProperties": {"^[cd]$": {}}, "minProperties": 3, **CLOSED},
    {"properties": {"a": {}}, "patternProperties": {"^[abc]$": {}}, "minProperties": 3, **CLOSED},
    {"type": "array", "contains": {**UNIQUE, "items": {"enum": [1, 2]}, "minItems": 2}},
    {"type": "array", "items": {"items": {"enum": [1, 2]}}, "contains": {**UNIQUE, "minItems": 2}},
    {"type": "array", "prefixItems": [{"items": {"const": 1}}], "contains": UNIQUE, "maxItems": 2},
    {"type": "array", "contains": {"type": "object", "minProperties": 2}, "maxItems": 2},
    {**UNIQUE, "items": {"type": "object"}, "contains": {"type": "object", "required": ["id"]}},
]


COMPACT = (",", ":")
SEPARATORS = [COMPACT, (", ", ": "), (" ,  ", " : "), (",\n", ":")]


def guide_of(schema: dict[str, Any], separators: tuple[str, str] = COMPACT) -> Guide:
    return CONSTRAINTS.guide(JsonSchema(schema, separators=separators))


def drawn(cursor: Cursor, budget: int, rng: random.Random) -> bytes:
    """An answer of tokens drawn among those allowed."""
    text = b""
    while not cursor.is_finished and budget > 0:
        bits = np.unpackbits(cursor.mask_within(budget).view(np.uint8), bitorder="little")
        token = rng.choice(np.flatnonzero(bits).tolist())
        if not cursor.fits(token, budget):
            continue
        cursor.advance(token)
        if token != END:
            text += TOKENS[token]
            budget -= 1
    assert cursor.is_finished or cursor.is_accepting
    return text


def accepts(schema: dict[str, Any], value: Any) -> bool:
    text = json.dumps(value, separators=(",", ":")).encode()
    try:
        return guide_of(schema).cursor().after(text).is_accepting
    except CallFailed:
        return False


@pytest.mark.parametrize("separators", SEPARATORS, ids=repr)
@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_every_answer_is_valid_and_ends_in_time(
    schema: dict[str, Any], separators: tuple[str, str]
) -> None:
    rng, guide = random.Random(7), guide_of(schema, separators)
    validator = Draft202012Validator(schema)
    least = guide.cursor().shortest_finish()
    for extra in (2, 12, 40):
        for _ in range(4):
            answer = drawn(guide.cursor(), least + extra, rng)
            assert validator.is_valid(json.loads(answer)), answer


@pytest.mark.parametrize("schema", SCHEMAS[-15:], ids=range(15))
def test_forced_bytes_repeat_nothing(schema: dict[str, Any]) -> None:
    rng, cursor = random.Random(3), guide_of(schema).cursor()
    for _ in range(60):
        cursor = cursor.after(cursor.forced())
        if cursor.is_finished:
            break
        bits = np.unpackbits(cursor.mask().view(np.uint8), bitorder="little")
        cursor.advance(rng.choice(np.flatnonzero(bits).tolist()))


def test_an_item_that_repeats_another_in_another_spelling_is_refused() -> None:
    cursor = guide_of({"uniqueItems": True}).cursor()
    for text in (b'["a","\\u0061",', b"[1,1.0]", b"[0,0e5]", b'[{"a":1,"b":2},{"b":2,"a":1}]'):
        with pytest.raises(CallFailed):
            cursor.after(text)
    assert cursor.after(b'[1,true,"1",[1],{"1":1}]').is_accepting
    assert accepts({"uniqueItems": True}, [[1], [2], [1, 2]])
    assert not accepts({"uniqueItems": True}, [[1], [2], [1]])


def test_a_token_after_which_every_way_on_repeats_an_item_is_not_allowed() -> None:
    cursor = guide_of(SCHEMAS[0]).cursor(b"[true,")
    mask = np.flatnonzero(np.unpackbits(cursor.mask().view(np.uint8), bitorder="little"))
    assert mask.tolist() == [ord("f")]
    cursor = guide_of(SCHEMAS[0]).cursor(b"[true,false")
    mask = np.flatnonzero(np.unpackbits(cursor.mask().view(np.uint8), bitorder="little"))
    assert mask.tolist() == [ord("]")]


@pytest.mark.parametrize(
    "item",
    [
        {"type": ["boolean", "null"]},
        {"enum": [1, 12, "a", 2.5]},
        {**UNIQUE, "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    ],
)
@pytest.mark.parametrize("separators", SEPARATORS, ids=repr)
def test_no_way_is_a_dead_end(item: dict[str, Any], separators: tuple[str, str]) -> None:
    todo, seen = [(b"", guide_of({**UNIQUE, "items": item}, separators).cursor())], set[bytes]()
    while todo:
        text, cursor = todo.pop()
        if text in seen or cursor.is_finished:
            continue
        seen.add(text)
        tokens = np.flatnonzero(np.unpackbits(cursor.mask().view(np.uint8), bitorder="little"))
        assert len(tokens), text
        for token in tokens.tolist():
            after = cursor.copy()
            after.advance(token)
            todo.append((text + (b"" if token == END else TOKENS[token]), after))
    assert len(seen) > 40


def test_copies_keep_what_was_written_each_for_itself() -> None:
    one = guide_of(SCHEMAS[1]).cursor(b'["a"')
    other = one.copy()
    one.advance(ord(","))
    assert other.after(b',"b","c"]').is_accepting
    with pytest.raises(CallFailed):
        one.after(b'"a",')


def test_arrays_that_need_more_items_than_there_are_are_refused() -> None:
    with pytest.raises(InvalidCall, match="at most 2 different items"):
        guide_of({**UNIQUE, "items": {"type": "boolean"}, "minItems": 3})


@pytest.mark.parametrize(
    "items", [{"const": "x"}, {"type": "null"}, {"type": "boolean"}, {"enum": [1, 1.0, True]}]
)
def test_a_property_that_needs_more_items_than_there_are_is_never_written(
    items: dict[str, Any],
) -> None:
    array = {**UNIQUE, "items": items, "minItems": 3}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "a": array}}
    with pytest.raises(InvalidCall, match=r"#/properties/a.*uniqueItems with at most"):
        guide_of({**schema, "required": ["a"]})
    assert accepts(schema, {"n": 5})
    with pytest.raises(CallFailed):
        guide_of(schema).cursor(b'{"a"')
    assert accepts(
        {**UNIQUE, "items": {"type": ["boolean", "null"]}, "minItems": 3}, [True, None, False]
    )


@pytest.mark.parametrize("rest", [{}, {"maxItems": 3}, {"items": {"type": ["integer", "object"]}}])
def test_the_shortest_answer_takes_a_few_tokens(rest: dict[str, Any]) -> None:
    schema = {**UNIQUE, "contains": {"type": "integer"}, **rest}
    assert guide_of(schema).cursor().shortest_finish() <= 6


def test_where_no_token_fits_some_are_allowed_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer that is cut off is better than none. Here the known end is no longer allowed."""
    monkeypatch.setattr(DistinctCursor, "end", lambda self: b"}")
    cursor = guide_of(SCHEMAS[-1]).cursor(b'[{"a":1,"a":2}')
    for _ in range(len(TOKENS)):
        allowed = np.flatnonzero(
            np.unpackbits(cursor.mask_within(1).view(np.uint8), bitorder="little")
        )
        assert len(allowed)
        if cursor.fits(int(allowed[0]), 1):
            return
    raise AssertionError("no token was accepted")
