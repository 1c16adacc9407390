"""oneOf beside other keywords, and large schemas: options stay apart whatever else is said."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.grammar.rules import merged, schema_grammar
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

from ..grammar.test_rules import accepts, matcher_of
from .test_distinct import guide_of

WHOLE = {"type": "integer"}
TWO = {"minProperties": 2}


def having(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: WHOLE}, "required": [name]}


def test_an_option_kept_apart_by_a_missing_property_does_not_regain_it_from_another_keyword() -> (
    None
):
    both = {"allOf": [{"anyOf": [{"properties": {"b": WHOLE}}]}]}
    found = matcher_of({"oneOf": [having("a"), having("b")], **both})
    assert accepts(found, {"a": 1}) and accepts(found, {"b": 1})
    assert not accepts(found, {"a": 1, "b": 1})


def test_options_kept_apart_inside_a_property_stay_apart() -> None:
    def within(inner: Any) -> Any:
        return {"type": "object", "properties": {"p": inner}, "required": ["p"]}

    more = {"anyOf": [{"properties": {"p": {"properties": {"b": WHOLE}}}}]}
    schema = {"oneOf": [within(having("a")), within(having("b"))], "allOf": [more]}
    try:
        found = matcher_of(schema)
    except InvalidCall as error:
        assert "some value" in str(error) or "stated" in str(error)
    else:
        assert not accepts(found, {"p": {"a": 1, "b": 1}})


def test_an_option_without_a_type_is_limited_to_the_types_that_distinguish_it() -> None:
    options = [{"required": ["a"], "properties": {"a": WHOLE}}, {"type": "string"}]
    found = matcher_of({"oneOf": options, "allOf": [{"anyOf": [{"minLength": 3}]}]})
    assert accepts(found, {"a": 1})
    assert not accepts(found, "abc") or not accepts(found, 5)


def test_options_with_pattern_properties_are_distinguished_by_a_constant() -> None:
    def kind(name: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"type": {"enum": [name]}, "note": {"type": "string"}},
            "required": ["type"],
            "patternProperties": {"^x-": {}},
            "additionalProperties": False,
        }

    names = [f"kind{i}" for i in range(12)]
    schema = {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    found = matcher_of({**schema, "$defs": {name: kind(name) for name in names}})
    assert accepts(found, {"type": "kind3", "note": "a", "x-b": [1]})
    assert not accepts(found, {"type": "kind12"})


def test_a_one_of_that_nothing_meets_leaves_the_other_alternatives() -> None:
    texts = {"oneOf": [{"type": "string"}, {"type": "boolean"}]}
    schema = {"anyOf": [{"allOf": [WHOLE, texts]}, {"type": "null"}]}
    assert schema_pattern(schema) == "null"


def test_rules_with_equal_bodies_are_merged_until_none_are_left() -> None:
    rules = {"a": " b | c ", "b": ' "(" d ")" ', "c": ' "(" e ")" ', "d": " T0 ", "e": " T0 "}
    start, kept = merged("a", rules)
    assert (start, kept) == ("a", {"a": " b | b ", "b": ' "(" d ")" ', "d": " T0 "})
    assert merged("e", rules)[0] == "d"


def test_thousands_of_places_that_say_the_same_are_few_rules() -> None:
    part = {"type": "object", "properties": {"n": WHOLE, "t": {"type": "string"}}}
    schema = {"type": "object", "properties": {f"p{i}": part for i in range(700)}}
    schema["properties"]["free"] = {}
    source = schema_grammar(json.loads(json.dumps(schema)))
    assert sum(line.startswith("v") for line in source.splitlines()) == 5
    library = Library(Vocabulary([bytes([byte]) for byte in range(256)], []))
    matcher = library.compile(source, "json_schema")[1]
    assert accepts(matcher, {"p5": {"n": 1}, "p699": {"t": "a"}, "free": [None]})


def test_too_many_different_places_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkroot.core.fsm.grammar.rules.MAX_RULES", 1_000)
    schema = {"properties": {f"p{i}": {"const": i} for i in range(1_100)}, "type": "object"}
    schema["properties"]["free"] = {}
    with pytest.raises(InvalidCall, match="different places"):
        schema_grammar(schema)


def test_keywords_later_than_the_draft_never_allow_more() -> None:
    draft = "http://json-schema.org/draft-07/schema#"
    contains = {"$schema": draft, "contains": {"type": "null"}, "minContains": 0}
    found = matcher_of({**contains, "type": "array", "items": {"type": ["null", "integer"]}})
    assert accepts(found, [1, None]) and not accepts(found, [1])
    ignored = {"type": "object", "properties": {"a": WHOLE}, "dependentRequired": {"a": ["b"]}}
    schema = {"$schema": draft, "anyOf": [{"not": ignored}, WHOLE]}
    found = matcher_of(schema)
    assert accepts(found, 5) and not accepts(found, {"a": 1})


@pytest.mark.parametrize("unlike", [{"enum": [1, 2]}, {"minLength": 5}, {"const": "a"}])
def test_an_item_that_two_types_and_a_complement_exclude_is_never_written(unlike: object) -> None:
    contained = {"type": ["integer", "string"], "not": unlike}
    array = {"type": "array", "items": {"type": "boolean"}, "contains": contained}
    found = matcher_of({"anyOf": [array, {"type": "null"}]})
    assert accepts(found, None)
    assert not any(accepts(found, value) for value in ([7], [True], ["bc", True], []))


def test_a_name_that_patterns_cannot_tell_is_refused_by_pointer() -> None:
    options = [{"patternProperties": {"^[a-c]{1,2}$": {}}}, {"dependentSchemas": {"é": TWO}}]
    with pytest.raises(InvalidCall, match="printable ASCII"):
        guide_of({"anyOf": options})


def test_what_an_array_contains_may_come_behind_its_first_items() -> None:
    kinds = {"items": {"enum": ["a", "b", "c"]}, "contains": {"enum": ["b", "c"]}}
    found = matcher_of(
        {"type": "array", "prefixItems": [{"const": "a"}], **kinds, "minContains": 2}
    )
    assert accepts(found, ["a", "b", "c"]) and not accepts(found, ["a", "b"])


@pytest.mark.parametrize(
    "source", [r"^((?!\.{2}).)*$", r"^(?:(?!\.\.).)*$", r"^(?=^[^./~])(^((?!\.{2}).)*$).*$"]
)
def test_a_text_that_holds_no_match_of_a_lookahead_is_written_exactly(source: str) -> None:
    found = matcher_of({"type": "string", "pattern": source})
    for text in ("a", "a.b.c", "a..b", "..", "a.", "", "~a", ".a", "x...", "\n", "é.b"):
        expected = re.search(source, text) is not None and "\n" not in text
        assert accepts(found, text) == expected, text


def test_places_below_each_other_may_be_many() -> None:
    defs: dict[str, Any] = {
        f"d{i}": {"type": "object", "properties": {"p": {"$ref": f"#/$defs/d{i + 1}"}, f"v{i}": {}}}
        for i in range(600)
    }
    guide = guide_of({"$ref": "#/$defs/d0", "$defs": {**defs, "d600": WHOLE}})
    assert guide.cursor().after(b'{"p":{"p":{"v2":[]}},"v0":1}').is_accepting


def test_a_schema_of_thousands_of_names_is_compiled() -> None:
    names = {f"name {i}": {"type": "string"} for i in range(1_050)}
    schema = {"type": "object", "properties": {**names, "free": {}}}
    text = b'{"name 7":"x","name 1049":"","free":[{}]}'
    assert guide_of(schema).cursor().after(text).is_accepting


def test_a_schema_with_too_many_names_for_a_grammar_is_refused_by_its_pointer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forkroot.core.fsm.grammar.lark.MAX_SCHEMA_RULES", 100)
    names = {f"name {i}": {"type": "string"} for i in range(120)}
    schema = {"type": "object", "properties": {**names, "free": {}}}
    with pytest.raises(InvalidCall, match="rules and terminals") as caught:
        guide_of(schema)
    assert caught.value.value == "#"
