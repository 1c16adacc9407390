"""Keywords and formats that nobody knows: annotations, logged once and refused where strict."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from forkroot.core.api.dialects import FORMATS, Ignored, ignored
from forkroot.core.api.protocol import InvalidCall, JsonSchema
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.json_schema.patterns.formats import ALIASES, FREE, NUMBERS, STRINGS
from forkroot.core.fsm.json_schema.schema import schema_pattern

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
DRAFT_3 = "http://json-schema.org/draft-03/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
BYTES = [bytes([byte]) for byte in range(256)]


def accepted(schema: Any, *values: Any) -> list[Any]:
    pattern = re.compile(schema_pattern(schema))
    texts = [json.dumps(value, separators=(",", ":")) for value in values]
    return [value for value, text in zip(values, texts, strict=True) if pattern.fullmatch(text)]


def places(schema: Any) -> list[str]:
    return [it.pointer for it in ignored(schema)]


@pytest.mark.parametrize("name", ["colour", "x-a", "$vendor", "_note", "a b", "", "Type", "é", "$"])
@pytest.mark.parametrize("value", [1, None, "a", [{}], {"type": "nothing"}, False])
def test_an_unknown_keyword_restricts_nothing_wherever_it_stands(name: str, value: Any) -> None:
    schema = {
        name: value,
        "type": "object",
        "properties": {"a": {**WHOLE, name: value}, "b": {"anyOf": [{**TEXT, name: value}]}},
        "$defs": {name: value},
    }
    assert accepted(schema, {"a": 1, "b": "x"}, {"a": "x"}) == [{"a": 1, "b": "x"}]


def test_annotations_may_have_any_value() -> None:
    for name in ("title", "description", "default", "examples", "deprecated", "readOnly"):
        assert accepted({**WHOLE, name: {"odd": [None]}}, 1, "a") == [1]
    for name in ("contentEncoding", "contentMediaType", "$comment", "definitions", "$defs"):
        assert accepted({**WHOLE, name: 3}, 1, "a") == [1]
    assert accepted({**TEXT, "format": {"odd": 1}}, "a", 1) == ["a"]


def test_a_format_that_nobody_knows_restricts_nothing() -> None:
    assert accepted({**TEXT, "format": "unheard-of"}, "a", "", 1) == ["a", ""]
    assert accepted({**WHOLE, "format": "unheard-of"}, 1, "a") == [1]


def test_nullable_is_an_annotation_of_other_dialects() -> None:
    assert accepted({**TEXT, "nullable": True}, "a", None) == ["a"]
    assert places({**TEXT, "nullable": True}) == ["#/nullable"]


def test_ignored_keywords_are_found_where_schemas_stand_and_nowhere_else() -> None:
    schema = {
        "a/b": 1,
        "title": "t",
        "x-order": 1,
        "properties": {"colour": {"~hue": 1}, "p": {"enum": [{"odd": 1}], "default": {"odd": 1}}},
        "anyOf": [{"items": {"odd": 1}}, {"prefixItems": [{"odd": 2}]}],
        "$defs": {"d": {"format": "odd"}},
        "example": {"odd": 1},
    }
    found = ["#/a~1b", "#/properties/colour/~0hue", "#/anyOf/0/items/odd"]
    found += ["#/anyOf/1/prefixItems/0/odd", "#/$defs/d/format"]
    assert places(schema) == found
    assert places(True) == places({}) == []


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("proprties", "properties"),
        ("requird", "required"),
        ("maxlength", "maxLength"),
        ("discription", "description"),
        ("additionalProperty", "additionalProperties"),
        ("colour", None),
        ("propertyOrder", None),
    ],
)
def test_one_that_looks_misspelled_is_named_with_the_one_that_was_meant(
    name: str, suggested: str | None
) -> None:
    assert ignored({name: 1}) == [
        Ignored(f"#/{name}", f"; did you mean {suggested}?" * bool(suggested))
    ]


def test_a_misspelled_format_is_named_too() -> None:
    assert ignored({"format": "datetime"}) == [Ignored("#/format", "; did you mean date-time?")]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("strng", "string"),
        ("Object", "object"),
        (["string", "nul"], "null"),
        ({"type": "intger"}, None),
        ("int", "integer"),
        ("float", "number"),
        ("list", "array"),
        ("dict", "object"),
        ("None", "null"),
        ("colour", None),
        ("", None),
        (5, None),
        ([], None),
    ],
)
def test_a_misspelled_type_or_one_of_python_is_refused_with_the_one_that_was_meant(
    given: Any, meant: str | None
) -> None:
    names = "object, array, string, number, integer, boolean, null"
    with pytest.raises(InvalidCall) as caught:
        schema_pattern({"type": "object", "properties": {"a": {"type": given}}})
    assert caught.value.value == "#/properties/a/type"
    suggestion = f"; did you mean {meant}?" if meant else ""
    assert caught.value.allowed == f"one of {names}, or a list of these{suggestion}"


def test_what_an_old_draft_ignores_beside_a_reference_is_named() -> None:
    schema = {
        "$schema": DRAFT_7,
        "properties": {"a": {"$ref": "#/$defs/a", "maximum": 3, "title": "t"}},
    }
    assert places(schema) == ["#/properties/a/maximum"]
    assert places({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}) == []


def test_no_more_is_looked_at_than_a_bound() -> None:
    wide = {"properties": {f"p{i}": {"odd": 1} for i in range(100_000)}}
    assert len(ignored(wide)) == 256
    assert len(ignored(wide, 3)) == 3
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"items": deep}
    assert ignored(deep) == []


def test_ignored_keywords_are_logged_once_for_a_schema(caplog: pytest.LogCaptureFixture) -> None:
    constraints = Constraints(BYTES, [], lambda text: list(text.encode()))
    schema = {**WHOLE, "maximun": 3, "properties": {f"p{i}": {"odd": 1} for i in range(9)}}
    with caplog.at_level(logging.WARNING, "forkroot.constraints"):
        for _ in range(3):
            constraints.guide(JsonSchema(schema))
        constraints.guide(JsonSchema(WHOLE))
    (message,) = caplog.messages
    assert "#/maximun; did you mean maximum?, #/properties/p0/odd, " in message
    assert message.endswith("#/properties/p6/odd, and 2 more")


def test_a_strict_schema_refuses_what_it_does_not_know() -> None:
    constraints = Constraints(BYTES, [], lambda text: list(text.encode()))
    schema = {"type": "object", "properties": {"a": {**TEXT, "maxLenght": 3}}}
    assert constraints.guide(JsonSchema(schema)) is not None
    with pytest.raises(InvalidCall, match=r"#/properties/a/maxLenght.*did you mean maxLength\?"):
        constraints.guide(JsonSchema(schema, strict=True))
    with pytest.raises(InvalidCall, match="#/format"):
        constraints.guide(JsonSchema({**TEXT, "format": "odd"}, strict=True))
    assert constraints.guide(JsonSchema({**TEXT, "x-odd": 1}, strict=True)) is not None


def test_all_formats_that_restrict_are_known() -> None:
    assert {*STRINGS, *FREE, *ALIASES, *NUMBERS} == FORMATS


def test_a_property_may_say_itself_that_it_is_required() -> None:
    for draft in ({}, {"$schema": DRAFT_3}, {"$schema": DRAFT_7}):
        properties = {"a": {**TEXT, "required": True}, "b": {**WHOLE, "required": False}}
        schema = {**draft, "type": "object", "properties": properties, "required": True}
        values = ({"a": "x"}, {"a": "x", "b": 1}, {"b": 1}, {})
        assert accepted(schema, *values) == [*values[:2]]
    assert accepted({"enum": [1, "a"], "required": True}, 1, "a", {}) == [1, "a"]


def test_what_draft_3_says_in_its_own_words_holds() -> None:
    draft = {"$schema": DRAFT_3}
    assert accepted({**draft, **WHOLE, "divisibleBy": 3, "maximum": 9, "minimum": 0}, 3, 4) == [3]
    assert accepted({**draft, "extends": WHOLE}, 1, "a") == [1]
    assert accepted({**draft, "extends": [WHOLE, {"minimum": 3}]}, 3, 1, "a") == [3]
    assert accepted({**draft, "type": ["null", {"enum": [1, 2]}]}, None, 1, 3) == [None, 1]
    assert accepted({**draft, "type": ["any"], "enum": [1]}, 1, 2) == [1]
    assert accepted({**WHOLE, "divisibleBy": 3, "extends": TEXT}, 4) == [4]


def test_prefix_items_are_unknown_to_older_drafts() -> None:
    schema = {"type": "array", "prefixItems": [TEXT], "items": WHOLE}
    assert accepted(schema, ["a", 1], [1]) == [["a", 1]]
    assert accepted({**schema, "$schema": DRAFT_7}, ["a", 1], [1]) == [[1]]
