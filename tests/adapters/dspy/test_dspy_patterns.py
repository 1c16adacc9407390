"""The patterns that schemas become: what they allow is what Pydantic and DSPy read."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal

import pytest

pytest.importorskip("dspy")

from forkroot.adapters.dspy.patterns.scalars import (
    CHAT_TEXT,
    JSON_CHAR,
    LEAN_CHAR,
    XML_TEXT,
    integers,
    multiples,
    numbers,
)
from forkroot.adapters.dspy.patterns.schema import Writer
from forkroot.adapters.dspy.patterns.spelling import Json, UnsupportedSchema, Xml
from forkroot.core.fsm.json_schema.patterns.intervals import Interval

LINE = Json(JSON_CHAR, LEAN_CHAR)
INDENTED = Json(JSON_CHAR, LEAN_CHAR, indent=2)


def allows(pattern: str | None, text: str) -> bool:
    return pattern is not None and re.fullmatch(pattern, text) is not None


def test_integers_between_two_bounds_are_these_and_no_others() -> None:
    rng = random.Random(4)
    for _ in range(200):
        low = rng.randrange(1000)
        high = low + rng.randrange(1500)
        pattern = integers(Interval(Decimal(low), Decimal(high)))
        result = [n for n in range(3000) if allows(pattern, str(n))]
        assert result == list(range(low, high + 1))


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        (Interval(Decimal(-3), Decimal(12)), [-3, 0, 12], [-4, 13]),
        (Interval(Decimal(0), Decimal(5), True, True), [1, 4], [0, 5]),
        (Interval(None, Decimal(-7)), [-7, -400], [-6, 0, 7]),
        (Interval(Decimal(18)), [18, 99, 12345], [17, -18]),
    ],
)
def test_integers_keep_to_their_interval(
    interval: Interval, inside: list[int], outside: list[int]
) -> None:
    pattern = integers(interval)
    assert all(allows(pattern, str(number)) for number in inside)
    assert not any(allows(pattern, str(number)) for number in outside)


@pytest.mark.parametrize(
    "interval",
    [
        Interval(Decimal(0), Decimal(1)),
        Interval(Decimal("0.5"), Decimal("0.7"), True, False),
        Interval(Decimal(-2), Decimal(300)),
        Interval(Decimal("-1.5"), None),
        Interval(None, Decimal(8), False, True),
    ],
)
def test_numbers_keep_to_their_interval(interval: Interval) -> None:
    pattern, rng = numbers(interval), random.Random(1)
    assert pattern is not None
    values = [str(Decimal(rng.randrange(-4000, 4000)) / 1000) for _ in range(2000)]
    result = [text for text in values if allows(pattern, text)]
    assert result
    assert all(interval.holds(Decimal(text)) for text in result)


def test_numbers_reach_to_the_bounds_of_a_long_interval() -> None:
    assert allows(numbers(Interval(Decimal(0), None, True)), "0.5")
    assert allows(numbers(Interval(None, Decimal("-1.25"))), "-1.3")
    pattern = numbers(Interval(Decimal("0.5"), Decimal("1000.5"), False, True))
    inside, outside = ("0.5", "0.75", "1000", "1000.4"), ("0.4", "1000.5", "1000.6")
    assert all(allows(pattern, text) for text in inside)
    assert not any(allows(pattern, text) for text in outside)


def test_an_empty_interval_has_no_pattern() -> None:
    assert integers(Interval(Decimal(3), Decimal(2))) is None
    assert numbers(Interval(Decimal(1), Decimal(1), True, True)) is None


def test_multiples_are_counted_from_the_lower_bound() -> None:
    pattern = multiples(Interval(Decimal(10), Decimal(30)), Decimal(7))
    assert [n for n in range(40) if allows(pattern, str(n))] == [14, 21, 28]


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}


def test_an_object_is_written_as_dspy_writes_its_examples() -> None:
    value = {"name": "A", "age": 3}
    assert allows(Writer(PERSON, LINE).pattern(), json.dumps(value))
    assert allows(Writer(PERSON, INDENTED).pattern(), json.dumps(value, indent=2))
    nested = {"type": "array", "items": PERSON}
    assert allows(Writer(nested, INDENTED).pattern(), json.dumps([value, value], indent=2))
    assert allows(Writer(nested, Xml()).pattern(), "<item><name>A</name><age>3</age></item>")


def test_what_refers_to_itself_is_unfolded_a_few_times() -> None:
    tree = {
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                },
                "required": ["kids"],
            }
        },
        "$ref": "#/$defs/Tree",
    }
    pattern = Writer(tree, LINE).pattern()
    assert allows(pattern, '{"kids": []}')
    assert allows(pattern, '{"kids": [{"kids": []}, {"kids": [{"kids": []}]}]}')


def test_what_only_refers_to_itself_has_no_value() -> None:
    endless = {
        "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
        "$ref": "#/$defs/A",
    }
    endless["$defs"]["A"]["required"] = ["a"]  # type: ignore[index]
    with pytest.raises(UnsupportedSchema, match="no value"):
        Writer(endless, LINE).pattern()


def test_a_branch_that_cannot_be_said_is_left_out_where_there_is_another() -> None:
    either = {"anyOf": [{"type": "string", "pattern": "^(?!x).*$"}, {"type": "integer"}]}
    assert allows(Writer(either, LINE).pattern(), "12")
    with pytest.raises(UnsupportedSchema, match="pattern"):
        Writer({"type": "string", "pattern": "^(?!x).*$"}, LINE).pattern()


def test_a_chat_section_holds_any_text_without_a_header() -> None:
    assert allows(CHAT_TEXT, "two lines\nand [brackets] [[1, 2], [3]] a[[0]]")
    assert not allows(CHAT_TEXT, "text\n[[ ## answer ## ]]")


def test_xml_text_has_no_markup() -> None:
    assert allows(XML_TEXT, "a > b &amp; c [1] ]] x")
    for text in ("a < b", "a & b", "x ]]> y", "bell \x07"):
        assert not allows(XML_TEXT, text)
