"""JSON Schema as a pattern: keyword by keyword, refusals by name, and hostile documents."""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidCall, Regex, UnsupportedCall
from forkroot.core.fsm.json_schema.patterns.formats import read_format
from forkroot.core.fsm.json_schema.patterns.strings import lengths, squeezed
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.regex.errors import NotRegular
from forkroot.core.fsm.tokens.regular import automaton

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}


def accepted(schema: Any, *values: Any) -> list[Any]:
    pattern = re.compile(schema_pattern(schema))
    texts = [json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values]
    return [value for value, text in zip(values, texts, strict=True) if pattern.fullmatch(text)]


def test_a_small_object_reads_as_it_is_written() -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, "a.b"]}},
        "required": ["ok"],
    }
    assert schema_pattern(schema) == r'\{"ok":(?:true|false)(?:,"n":(?:1|"a\.b"))?\}'


def test_optional_properties_may_be_left_out_wherever_they_stand() -> None:
    names = "abcdefg"
    schema = {"type": "object", "properties": {name: {"const": 0} for name in names}}
    for bits in range(2 ** len(names)):
        value = {name: 0 for i, name in enumerate(names) if bits >> i & 1}
        assert accepted(schema, value) == [value]
        required = {**schema, "required": ["d"]}
        assert accepted(required, value) == [value] * ("d" in value)


def test_the_pattern_of_optional_properties_grows_by_little_more_than_their_number() -> None:
    def length(num_names: int) -> int:
        names = [f"n{i:04}" for i in range(num_names)]
        return len(schema_pattern({"type": "object", "properties": dict.fromkeys(names, TEXT)}))

    assert length(512) < 2.5 * length(256)


def test_properties_come_in_the_order_of_the_schema() -> None:
    schema = {"type": "object", "properties": {"b": WHOLE, "a": WHOLE}, "required": ["a", "b"]}
    assert re.fullmatch(schema_pattern(schema), '{"b":1,"a":2}')
    assert not re.fullmatch(schema_pattern(schema), '{"a":2,"b":1}')


def test_strings_are_valid_json_and_counted_in_characters() -> None:
    pattern = re.compile(schema_pattern({**TEXT, "minLength": 2, "maxLength": 2}))
    two = ('"ab"', '"é\U0001f600"', r'"\n\""', r'"\u00e9\\"', r'"\ud83d\ude00x"', '"\x7f\u2028"')
    other = ('"a"', '"abc"', '"a\n"', r'"\ud83d\u0041"', r'"\ude00a"', r'"\xaa"', '"a""', r'"\u12"')
    assert [text for text in two if not pattern.fullmatch(text)] == []
    assert [text for text in other if pattern.fullmatch(text)] == []


def test_long_counted_strings_keep_to_short_escapes() -> None:
    pattern = re.compile(schema_pattern({**TEXT, "maxLength": 17}))
    assert pattern.fullmatch(r'"\n\"\\é' + "😀" * 13 + '"')
    assert not pattern.fullmatch('"' + "a" * 18 + '"')
    assert not pattern.fullmatch(r'"\u0041"')


def test_patterns_are_found_anywhere_unless_anchored() -> None:
    assert accepted({**TEXT, "pattern": "b+"}, "b", "abc", "ac") == ["b", "abc"]
    assert accepted({**TEXT, "pattern": "^b|c$"}, "ba", "ac", "ab") == ["ba", "ac"]
    assert accepted({**TEXT, "pattern": "^(a|b)$"}, "a", "ab") == ["a"]
    assert accepted({**TEXT, "pattern": r'^["\\\n]+$'}, '"\\\n', "n") == ['"\\\n']


def test_patterns_mean_what_both_dialects_agree_on() -> None:
    assert accepted({**TEXT, "pattern": r"^\d\w\s$"}, "1a ", "٣a ", "1é ", "1a\u00a0") == ["1a "]
    assert accepted({**TEXT, "pattern": r"^\D\W\S$"}, "a-x", "٣-x", "aéx", "a-\u00a0") == ["a-x"]
    assert accepted({**TEXT, "pattern": r"^[^\d]$"}, "a", "1", "٣") == ["a"]
    assert accepted({**TEXT, "pattern": "^.$"}, "a", "\n", "\u2028", "\r") == ["a"]


def test_a_pattern_and_a_length_meet() -> None:
    schema = {**TEXT, "pattern": "^[a-z][a-z0-9]*$", "minLength": 2, "maxLength": 4}
    assert accepted(schema, "a", "ab", "abcd", "abcde") == ["ab", "abcd"]
    parts = {**TEXT, "pattern": "^[a-z]+-[0-9]+$", "maxLength": 5}
    assert accepted(parts, "a-1", "abc-1", "a-123", "ab-123") == ["a-1", "abc-1", "a-123"]
    assert accepted({**TEXT, "pattern": "b", "maxLength": 2}, "b", "ab", "ba", "aba") == [
        "b",
        "ab",
        "ba",
    ]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "date",
            ["2024-02-29", "1999-12-31"],
            ["2023-02-29", "2024-04-31", "0000-01-01", "2024-1-1"],
        ),
        ("time", ["23:59:59Z", "00:00:00.5+02:00"], ["24:00:00Z", "10:00:00", "10:00Z"]),
        ("date-time", ["2000-02-29T00:00:00Z"], ["1900-02-29T00:00:00Z", "2000-01-01 00:00:00Z"]),
        ("email", ["ann.b+c@mail.example.org"], ["ann", "a@b", ".a@b.org", "a@-b.org"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
        ("ipv4", ["0.0.0.0", "255.255.255.255"], ["256.1.1.1", "1.1.1", "01.1.1.1"]),
        (
            "ipv6",
            ["::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2"],
            [":::", "1::2::3", "1:2:3", "12345::"],
        ),
        (
            "uri",
            ["https://a.example/b?c=d#e", "urn:isbn:1", "mailto:a@b.c"],
            ["a b", "//x", "http://%zz"],
        ),
        ("hostname", ["a-b.example"], ["-a.example", "a..b", "a_b"]),
        ("duration", ["P1Y2M3D", "PT1H2M", "P4W", "P1DT5S"], ["P", "PT", "P1H", "1D", "P1Y3D"]),
    ],
)
def test_formats_hold(name: str, good: list[str], bad: list[str]) -> None:
    assert accepted({**TEXT, "format": name}, *good, *bad) == good


def test_lengths_of_formats_are_kept() -> None:
    for name in ("uri", "email", "hostname", "duration", "uri-reference", "json-pointer", "byte"):
        for room in (8, 20, 90, 300):
            texts = squeezed(read_format(name), room)
            assert texts is not None
            assert (lengths(texts)[1] or 0) <= room
    schema = {**TEXT, "format": "uri", "maxLength": 90}
    assert accepted(schema, "https://a.de/x", "https://a.de/" + "x" * 90) == ["https://a.de/x"]


def test_formats_of_numbers_are_their_ranges() -> None:
    assert accepted({**WHOLE, "format": "uint8"}, 0, 255, 256, -1) == [0, 255]
    assert accepted({**WHOLE, "format": "int32"}, 2**31 - 1, 2**31) == [2**31 - 1]


def test_all_of_is_met_as_a_whole() -> None:
    closed = {"properties": {"a": WHOLE}, "required": ["a"], "additionalProperties": False}
    schema = {"allOf": [closed, {"type": "object", "properties": {"a": {"minimum": 5}, "b": TEXT}}]}
    assert accepted(schema, {"a": 5}, {"a": 4}, {"a": 5, "b": ""}) == [{"a": 5}]
    assert accepted({"allOf": [{"type": "number"}, WHOLE]}, 1, 1.5) == [1]
    assert accepted({"enum": [1, 2, "x"], "const": 2.0}, 1, 2, "x") == [2]


def test_one_of_takes_options_that_are_distinguished() -> None:
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
    values = ({"kind": "cat"}, {"kind": "dog"}, {"kind": "cow"})
    assert accepted({"oneOf": [cat, dog]}, *values) == list(values[:2])
    overlap = {"oneOf": [{"type": ["string", "null"]}, {"type": ["integer", "null"]}]}
    assert accepted(overlap, "a", 1, None) == ["a", 1]
    assert accepted({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, 1, 2, 3) == [1, 3]
    lists = {"oneOf": [{"type": "array", "items": WHOLE}, {"type": "array", "items": TEXT}]}
    assert accepted(lists, [1], ["a"], []) == [[1], ["a"]]


def test_one_of_is_refused_where_no_value_meets_one_alone() -> None:
    with pytest.raises(InvalidCall, match=r"#/oneOf.*options .* exactly one"):
        schema_pattern({"oneOf": [{**TEXT, "minLength": 1}, {**TEXT, "minLength": 1}]})


def test_of_options_that_overlap_each_is_taken_without_the_others() -> None:
    lengths = {"oneOf": [{**TEXT, "minLength": 2}, {**TEXT, "maxLength": 4}]}
    assert accepted(lengths, "a", "abc", "abcde") == ["a", "abcde"]
    bounds = {"oneOf": [WHOLE, {"minimum": 2}]}
    assert accepted(bounds, 1, 1.5, 2, 2.5) == [1, 2.5]
    either = {"properties": {"a": WHOLE, "b": WHOLE}}
    either["oneOf"] = [{"required": ["a"]}, {"required": ["b"]}]
    assert accepted(either, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {}) == [{"a": 1}, {"b": 1}]


def test_options_are_distinguished_from_all_that_the_others_allow() -> None:
    one = {"type": "object", "properties": {"t": {"const": 1}}}
    two = {"type": "object", "properties": {"t": {"const": 2}}, "required": ["t"]}
    inner = {"oneOf": [one, two]}
    assert accepted(inner, {}, {"t": 1}, {"t": 2}) == [{"t": 1}, {"t": 2}]
    formats = {"oneOf": [{**WHOLE, "minimum": 2**40}, {**WHOLE, "format": "int32"}]}
    assert accepted(formats, 5, 2**35, 2**41) == [5]


def test_open_names_leave_out_those_that_are_stated() -> None:
    schema = {
        "type": "object",
        "properties": {"ab": WHOLE, 'q"': WHOLE},
        "additionalProperties": TEXT,
    }
    good = ({"ab": 1}, {"abc": "x"}, {"a": "x", "": "y"}, {'q"': 1, "q": "z"}, {})
    assert accepted(schema, *good, {"ab": "x"}, {'q"': "x"}) == list(good)
    assert not re.fullmatch(schema_pattern(schema), r'{"\u0061b":"x"}')


def test_names_follow_patterns_and_counts() -> None:
    by_pattern = {"type": "object", "patternProperties": {"^x-": TEXT, "^[0-9]+$": WHOLE}}
    assert accepted(by_pattern, {"x-a": "b", "12": 3}, {"x-a": 3}, {"y": 1}) == [
        {"x-a": "b", "12": 3}
    ]
    few = {"type": "object", "additionalProperties": WHOLE, "minProperties": 1, "maxProperties": 2}
    assert accepted(few, {}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}) == [
        {"a": 1},
        {"a": 1, "b": 2},
    ]
    named = {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": WHOLE}
    assert accepted(named, {"a": 1}, {"c": 1}) == [{"a": 1}]


def test_items_are_counted_and_prefixes_kept_in_place() -> None:
    pair = {"type": "array", "prefixItems": [TEXT, WHOLE], "items": {"type": "null"}, "minItems": 1}
    assert accepted(pair, [], ["a"], ["a", 1, None, None], [1]) == [["a"], ["a", 1, None, None]]
    assert accepted({"type": "array", "items": WHOLE, "maxItems": 0}, [], [1]) == [[]]
    unique = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}
    assert accepted(unique, [], ["a", "b"], ["a", "a"]) == [[], ["a", "b"]]


def test_keywords_without_a_type_stand_for_theirs() -> None:
    assert accepted({"minimum": 3, "maximum": 4}, 3, 2, "a") == [3]
    assert accepted({"properties": {"a": WHOLE}}, {"a": 1}, 1) == [{"a": 1}]


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "properties": {"a/b": {"not": 3}}}, "#/properties/a~1b/not"),
        ({"type": "array", "items": TEXT, "minContains": 2, "contains": 1}, "#/contains"),
        ({"allOf": [{"if": 1, "then": {}}]}, "#/allOf/0/if"),
        ({**TEXT, "not": {**TEXT, "format": "date"}}, "#/not"),
        ({"type": "text"}, "#/type"),
        ({"type": "array", "items": 3}, "#/items"),
        ({**TEXT, "minLength": -1}, "#/minLength"),
        ({"$ref": "https://example.com/schema.json"}, "#/$ref"),
        ({"$ref": "#/$defs/missing"}, "#/$ref"),
        ({"properties": {"a": {**TEXT, "pattern": "(?<=a$)"}}}, "#/properties/a/pattern"),
        ({"patternProperties": {"(": TEXT}}, "#/patternProperties/("),
        ({"const": float("nan")}, "#/const"),
        ({"const": "\ud800"}, "#/const"),
        (False, "#"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "#"),
        ({"properties": {"a": {"enum": []}}, "required": ["a"]}, "#/properties/a"),
        (
            {"prefixItems": [{"const": 1}, {"allOf": [TEXT, WHOLE]}], "minItems": 2},
            "#/prefixItems/1",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_place(schema: Any, place: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        schema_pattern(schema)
    assert (caught.value.field, caught.value.value) == ("json_schema", place)
    assert not isinstance(caught.value, NotRegular)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": "array"},
        {"type": "object", "properties": {"a": WHOLE}, "additionalProperties": True},
        {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, TEXT]}}, "$ref": "#/$defs/a"},
        {**TEXT, "maxLength": 1_000_000},
    ],
)
def test_what_is_not_regular_says_so(schema: Any) -> None:
    with pytest.raises(NotRegular) as caught:
        schema_pattern(schema)
    assert isinstance(caught.value, UnsupportedCall)


def wrapped(keyword: str, inner: Any) -> Any:
    return {keyword: [inner] if keyword.endswith("Of") else inner, "type": "array"}


@pytest.mark.parametrize("keyword", ["items", "anyOf", "oneOf", "not"])
def test_schemas_nested_ten_thousand_deep_are_refused(keyword: str) -> None:
    schema = reduce(lambda inner, _: wrapped(keyword, inner), range(10_000), dict[str, Any](TEXT))
    with pytest.raises(InvalidCall):
        schema_pattern(schema)


def test_values_and_patterns_nested_ten_thousand_deep_are_refused() -> None:
    deep = reduce(lambda inner, _: [inner], range(10_000), list[Any]())
    for schema in (
        {"const": deep},
        {"enum": [deep]},
        {**TEXT, "pattern": "(" * 10_000 + ")" * 10_000},
    ):
        with pytest.raises(InvalidCall) as caught:
            schema_pattern(schema)
        assert len(str(caught.value)) < 1_000


def test_references_that_double_at_each_step_are_refused() -> None:
    def doubling(join: Any) -> Any:
        defs = {f"d{i}": join({"$ref": f"#/$defs/d{i - 1}"}) for i in range(1, 60)}
        return {"$ref": "#/$defs/d59", "$defs": {"d0": TEXT, **defs}}

    with pytest.raises(InvalidCall):
        schema_pattern(doubling(lambda ref: {"type": "object", "properties": {"a": ref, "b": ref}}))
    with pytest.raises(InvalidCall):
        schema_pattern(doubling(lambda ref: {"anyOf": [ref, ref]}))
    assert accepted(doubling(lambda ref: {"allOf": [ref, ref]}), "a", 1) == ["a"]


def test_thousands_of_properties_and_values_are_answered_or_refused() -> None:
    names = [f"name_{i}" for i in range(1_500)]
    ones = {name: {"const": 1} for name in names}
    whole = {"type": "object", "properties": ones, "required": names}
    assert accepted(whole, dict.fromkeys(names, 1), {}) == [dict.fromkeys(names, 1)]
    assert accepted({"enum": names}, "name_7", "name") == ["name_7"]
    with pytest.raises(InvalidCall):
        schema_pattern({"allOf": [{"properties": {name: WHOLE}} for name in names]}, seconds=0.5)
    options = [{"const": name, "title": "one of many"} for name in names]
    assert accepted({"oneOf": options}, "name_7", "name") == ["name_7"]


def test_bounds_of_thousands_of_digits_are_no_bounds() -> None:
    schema = {"type": "integer", "minimum": -(10**5000), "maximum": 10**5000}
    assert accepted(schema, 10**18, -(10**18), 1.5) == [10**18, -(10**18)]


def test_work_on_patterns_and_values_is_counted() -> None:
    many = {"properties": {f"a{i}": TEXT for i in range(60)}}
    patterns = {"patternProperties": {f"^(a+)+{i}$": TEXT for i in range(60)}}
    for schema in (
        {"type": "object", **many, **patterns},
        {"allOf": [many, patterns]},
        {**TEXT, "pattern": "^((a+)+)+$", "enum": ["a" * 1_000 + "!"]},
        {**TEXT, "pattern": "^a+$", "enum": [f"a{i}" for i in range(20_000)]},
    ):
        with pytest.raises(InvalidCall):
            schema_pattern(schema)


def test_patterns_that_make_others_backtrack_are_only_walked() -> None:
    schema = {
        "type": "object",
        "properties": {"a" * 200 + "!": TEXT, "b": TEXT},
        "patternProperties": {"^(a+)+$": WHOLE},
    }
    assert accepted(schema, {"aa": 1, "b": "x"}, {"b": "x", "aa": 1}) == [{"b": "x", "aa": 1}]


@pytest.mark.parametrize(
    "source",
    [
        "(ab",
        "a**",
        "*",
        "a{3,1}",
        "ab[z-a]",
        "[ab",
        "a)",
        "a\\",
        "\\q",
        "\\x4",
        "(.*)\\1",
        "(?:a|ab)*+",
        "(?>a|ab)",
        "(?<=a(?=b))b",
    ],
)
def test_a_pattern_in_a_schema_is_refused_as_one_alone_is(source: str) -> None:
    with pytest.raises(InvalidCall) as alone:
        automaton(Regex(source))
    with pytest.raises(InvalidCall) as within:
        schema_pattern({"type": "object", "properties": {"a": {"pattern": source}}})
    assert "position " in alone.value.allowed
    said = within.value.allowed.replace(" in `re` and ECMA-262: ", ": ")
    assert said == alone.value.allowed
    assert within.value.value == "#/properties/a/pattern"


def test_an_invalid_pattern_is_refused_with_its_fault_and_position() -> None:
    with pytest.raises(InvalidCall) as caught:
        automaton(Regex("b(a"))
    assert str(caught.value) == (
        "invalid regex='b(a': expected a valid pattern: unclosed group at position 1 ('(a')"
    )
