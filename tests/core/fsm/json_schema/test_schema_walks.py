"""Schemas of all restricting keywords, drawn by hypothesis: every finished answer is valid by
jsonschema, and every refusal is typed and names a place."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, event, given, seed, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.validators import validator_for

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.guide import Guide

from .test_distinct import END, TOKENS, guide_of

NUM_EXAMPLES = int(os.environ.get("FORKROOT_SCHEMA_EXAMPLES", "25"))
NAMES = st.sampled_from(["a", "b", "x-c"])
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]
SCALARS = st.sampled_from([None, True, False, 0, 1, -2, 2.5, "", "a", "ab", "x-c"])
VALUES = st.one_of(SCALARS, st.just([]), st.just([1]), st.just({"a": 1}), st.just(["a", "b"]))
PATTERNS = st.sampled_from(["^a", "b$", "^[ab]*$", "^x-", "^(?!a)", "^.{2,3}$", "a"])
COUNTS = st.integers(0, 3)
DRAFTS = st.sampled_from([it.META_SCHEMA["$id"] for it in (Draft7Validator, Draft202012Validator)])
LISTS = ("anyOf", "oneOf", "allOf")


def leaf() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.builds(lambda kind: {"type": kind}, st.sampled_from(TYPES)),
        st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=4)),
        st.builds(lambda value: {"const": value}, VALUES),
        st.builds(lambda word, n: {word: n}, st.sampled_from(["minimum", "maximum"]), COUNTS),
        st.builds(lambda n: {"type": "integer", "multipleOf": n}, st.sampled_from([2, 3, 0.5])),
        st.builds(lambda n: {"exclusiveMinimum": n, "type": "number"}, COUNTS),
        st.builds(lambda source: {"type": "string", "pattern": source}, PATTERNS),
        st.builds(lambda n, m: {"minLength": n, "maxLength": n + m}, COUNTS, COUNTS),
        st.builds(lambda n, m: {"minItems": n, "maxItems": n + m}, COUNTS, COUNTS),
        st.builds(lambda n: {"maxProperties": n}, COUNTS),
        st.builds(lambda names: {"required": names}, st.lists(NAMES, unique=True, max_size=2)),
        st.builds(lambda a, b: {"dependentRequired": {a: [b]}}, NAMES, NAMES),
        st.just({}),
    )


def larger(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(part, min_size=1, max_size=3)
    schemas = st.one_of(part, st.booleans())
    properties = st.dictionaries(NAMES, part, min_size=1, max_size=3)
    return st.one_of(
        st.builds(
            lambda named, names: {"type": "object", "properties": named, "required": names},
            properties,
            st.lists(NAMES, unique=True, max_size=2),
        ),
        st.builds(
            lambda named, rest: {"properties": named, "additionalProperties": rest},
            properties,
            schemas,
        ),
        st.builds(lambda source, one: {"patternProperties": {source: one}}, PATTERNS, part),
        st.builds(lambda rest: {"unevaluatedProperties": rest}, schemas),
        st.builds(lambda rest: {"unevaluatedItems": rest}, schemas),
        st.builds(lambda one: {"propertyNames": one}, part),
        st.builds(lambda word, options: {word: options}, st.sampled_from(LISTS), parts),
        st.builds(lambda one: {"not": one}, part),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, part, part, part),
        st.builds(lambda name, one: {"dependentSchemas": {name: one}}, NAMES, part),
        st.builds(
            lambda items, n, is_unique: {"items": items, "maxItems": n, "uniqueItems": is_unique},
            part,
            COUNTS,
            st.booleans(),
        ),
        st.builds(lambda items: {"type": "array", "prefixItems": items}, parts),
        st.builds(lambda one, n: {"contains": one, "minContains": n}, part, COUNTS),
        st.builds(lambda one, other: {**one, **other}, part, part),
        st.builds(lambda one, two, three: {**one, **two, **three}, part, part, part),
    )


SCHEMAS = st.recursive(leaf(), larger, max_leaves=8)


@seed(18)
@settings(
    max_examples=NUM_EXAMPLES,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(SCHEMAS, DRAFTS, st.integers(0, 999))
def test_walks_of_random_schemas_end_in_valid_answers(
    schema: dict[str, Any], draft: str, number: int
) -> None:
    schema = {"$schema": draft, **schema}
    validator = validator_for(schema)(schema)
    try:
        guide = guide_of(schema)
    except InvalidCall as error:
        event("refused")
        assert str(error.value).startswith("#") or error.value == schema
        return
    event("accepted")
    for extra in (1, 16):
        answer = walk(guide, random.Random(number), guide.cursor().shortest_finish() + extra)
        assert answer is None or validator.is_valid(json.loads(answer)), answer


def walk(guide: Guide, rng: random.Random, budget: int) -> bytes | None:
    """An answer of random tokens, of those after which it can end in time; None if it was cut."""
    cursor, data = guide.cursor(), b""
    for left in range(budget, 0, -1):
        if cursor.is_finished:
            return data
        bits = np.unpackbits(cursor.mask_within(left).view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        rng.shuffle(allowed)
        token = next((it for it in allowed if it == END or cursor.fits(it, left)), None)
        if token is None:
            return None
        if token == END:
            return data
        cursor.advance(token)
        data += TOKENS[token]
    return data if cursor.is_accepting else None
