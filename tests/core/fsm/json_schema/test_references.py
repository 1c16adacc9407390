"""References into a schema: pointers, identifiers, anchors, and what stands beside them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.grammar.ending import END
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.grammar.rules import schema_grammar
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
LIBRARY = Library(Vocabulary([bytes([byte]) for byte in range(256)], []))


def accepted(schema: Any, *values: Any) -> list[Any]:
    pattern = re.compile(schema_pattern(schema))
    texts = [json.dumps(value, separators=(",", ":")) for value in values]
    return [value for value, text in zip(values, texts, strict=True) if pattern.fullmatch(text)]


@pytest.mark.parametrize(
    ("key", "fragment"),
    [
        ("a/b", "a~1b"),
        ("a~b", "a~0b"),
        ("a b", "a%20b"),
        ("50%", "50%25"),
        ("http://a.example/b:c", "http:~1~1a.example~1b:c"),
        ("http://a.example/b", "http%3A~1~1a.example~1b"),
        ("é", "%C3%A9"),
        ("é", "é"),
        ("", ""),
        ('q"', "q%22"),
    ],
)
def test_a_pointer_finds_keys_of_any_spelling(key: str, fragment: str) -> None:
    schema = {"$ref": f"#/$defs/{fragment}", "$defs": {key: WHOLE}}
    assert accepted(schema, 1, "a") == [1]


def test_a_pointer_leads_into_any_part_of_the_document() -> None:
    schema = {
        "properties": {"a": TEXT, "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#/vendor/0/x"}},
        "vendor": [{"x": {"enum": [1, 2]}}],
    }
    values = ({"b": "x"}, {"b": 1}, {"c": 2}, {"c": 3})
    assert accepted(schema, *values) == [{"b": "x"}, {"c": 2}]


@pytest.mark.parametrize(
    "reference",
    ["https://a.example/dir/item", "item", "/dir/item", "item#", "item#/$defs/same", "#there"],
)
def test_identifiers_are_resolved_beside_those_that_hold_them(reference: str) -> None:
    item = {"$id": "item", "$anchor": "here", "type": "integer", "$defs": {"same": WHOLE}}
    schema = {
        "$id": "https://a.example/dir/root",
        "properties": {"n": {"$ref": reference}},
        "$defs": {"x": item, "y": {"$anchor": "there", **WHOLE}},
    }
    assert accepted(schema, {"n": 1}, {"n": "a"}) == [{"n": 1}]


def test_a_pointer_starts_at_the_innermost_identified_schema() -> None:
    inner = {
        "$id": "inner",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": WHOLE},
        "type": "object",
    }
    schema = {"properties": {"a": inner, "b": {"$ref": "#/$defs/n"}}, "$defs": {"n": TEXT}}
    values = ({"a": {"n": 1}}, {"a": {"n": "x"}}, {"b": "x"}, {"b": 1})
    assert accepted(schema, *values) == [{"a": {"n": 1}}, {"b": "x"}]


@pytest.mark.parametrize("word", ["id", "$id"])
@pytest.mark.parametrize("draft", [None, DRAFT_4, DRAFT_7])
def test_identifiers_of_any_draft_name_schemas(word: str, draft: str | None) -> None:
    named = {word: "http://a.example/whole", **WHOLE}
    schema: dict[str, Any] = {
        "properties": {"n": {"$ref": "http://a.example/whole"}, "m": {"$ref": "#spot"}},
        "definitions": {"whole": named, "spot": {word: "#spot", **TEXT}},
    }
    if draft is not None:
        schema["$schema"] = draft
    if (draft, word) == (DRAFT_4, "$id"):
        with pytest.raises(InvalidCall, match=r"http://a\.example/whole"):
            schema_pattern(schema)
    else:
        values = ({"n": 1}, {"n": "x"}, {"m": "x"}, {"m": 1})
        assert accepted(schema, *values) == [{"n": 1}, {"m": "x"}]


def test_identifiers_in_subschemas_that_nothing_refers_to_change_nothing() -> None:
    for name in ("#/properties/a", "/properties/a", "http://a.example/a", "a b", ""):
        for word in ("id", "$id"):
            schema = {"properties": {"a": {word: name, **WHOLE}}}
            assert accepted(schema, {"a": 1}, {"a": "x"}) == [{"a": 1}]


def test_names_of_properties_and_values_are_no_identifiers() -> None:
    schema = {
        "$defs": {"n": WHOLE},
        "properties": {
            "$id": {"$ref": "#/$defs/n"},
            "c": {"enum": [{"$id": "http://a.example/", "$ref": "#/nowhere"}]},
            "d": {"$ref": "#/$defs/n"},
        },
    }
    assert accepted(schema, {"$id": 1}, {"$id": "a"}, {"d": 2}) == [{"$id": 1}, {"d": 2}]


def test_keywords_beside_a_reference_hold_where_the_draft_says_so() -> None:
    schema = {"$ref": "#/definitions/n", "maximum": 5, "definitions": {"n": WHOLE}}
    for draft in (None, DRAFT_2019, DRAFT_2020):
        here = schema if draft is None else {**schema, "$schema": draft}
        assert accepted(here, 3, 7, "a") == [3]
    for draft in (DRAFT_4, DRAFT_7):
        assert accepted({**schema, "$schema": draft}, 3, 7, "a") == [3, 7]


def test_a_reference_to_a_document_that_is_not_here_is_refused_by_its_name() -> None:
    for reference, name in (
        ("http://a.example/x.json#/a", "http://a.example/x.json"),
        ("other.json", "http://b.example/other.json"),
    ):
        schema = {"$id": "http://b.example/root.json", "properties": {"a": {"$ref": reference}}}
        with pytest.raises(InvalidCall) as caught:
            schema_pattern(schema)
        assert caught.value.value == "#/properties/a/$ref"
        assert repr(name) in caught.value.allowed


@pytest.mark.parametrize("reference", ["#/$defs/missing", "#missing", 3, "#/$defs/text"])
def test_a_reference_to_nothing_is_refused_with_its_place(reference: Any) -> None:
    schema = {"properties": {"a": {"$ref": reference}}, "$defs": {"text": "no schema"}}
    with pytest.raises(InvalidCall) as caught:
        schema_pattern(schema)
    assert caught.value.value == "#/properties/a/$ref"


def test_broken_definitions_that_nothing_refers_to_are_left_alone() -> None:
    broken = {"a": {"type": "nothing"}, "b": 3, "c": {"$ref": "#/nowhere"}, "d": {"pattern": "("}}
    for word in ("$defs", "definitions"):
        assert accepted({**WHOLE, word: broken}, 1) == [1]
        assert accepted({**WHOLE, word: [3]}, 1) == [1]


def test_a_dynamic_reference_takes_the_anchor_of_the_root() -> None:
    schema = {
        "$id": "https://a.example/strings",
        "$ref": "list",
        "$defs": {
            "own": {"$dynamicAnchor": "item", **TEXT},
            "list": {
                "$id": "list",
                "type": "array",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"any": {"$dynamicAnchor": "item"}},
            },
        },
    }
    assert accepted(schema, ["a"], [1]) == [["a"]]


def test_a_recursive_reference_leads_to_the_root() -> None:
    schema = {
        "$schema": DRAFT_2019,
        "$recursiveAnchor": True,
        "type": "object",
        "properties": {"a": {"$recursiveRef": "#"}},
        "additionalProperties": False,
    }
    matcher = LIBRARY.compile(schema_grammar(schema), "json_schema")[1]
    good, bad = b'{"a":{"a":{}}}', b'{"a":1'
    assert matcher.validate_tokens([*good, END]) == len(good) + 1
    assert matcher.validate_tokens([*bad]) < len(bad)


def test_documents_that_define_json_schema_can_be_referred_to() -> None:
    of_draft_7 = f"{DRAFT_7}/definitions/"
    assert accepted({"$ref": f"{of_draft_7}nonNegativeInteger"}, 3, -1, "a") == [3]
    assert accepted({"$ref": f"{of_draft_7}simpleTypes"}, "array", "list") == ["array"]
