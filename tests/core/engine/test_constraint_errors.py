"""The error of a constraint that cannot be met, through the whole input processor."""

from __future__ import annotations

import re

import pytest

from forkroot.core.api.protocol import (
    Choices,
    Grammar,
    InvalidCall,
    JsonSchema,
    Regex,
    UnsupportedCall,
)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {
            "type": "array",
            "allOf": [{"contains": {"const": c}, "maxContains": 1} for c in (1, 2)],
        },
        {"type": "object", "minProperties": 5_000},
    ],
)
def test_a_schema_that_no_grammar_expresses_is_refused_by_pointer_each_time(
    bench, call, schema
) -> None:
    made = bench()
    made.pending_calls.constraints = made.constraints
    for _ in range(2):  # compiled, then kept
        (error,) = made.run([call("x", constraint=JsonSchema(schema))])
        assert isinstance(error, UnsupportedCall)
        assert error.field == "json_schema"
        assert error.allowed


@pytest.mark.parametrize(
    "constraint",
    [Regex(re.compile("a")), Regex(5), Grammar(None), JsonSchema("{}"), Choices(()), Choices("ab")],
    ids=repr,
)
def test_a_constraint_of_the_wrong_type_is_refused_by_field(bench, call, constraint) -> None:
    (error,) = bench().run([call("x", constraint=constraint)])
    assert type(error) is InvalidCall
    assert error.field == "constraint"


def test_choices_that_are_given_twice_are_refused_with_the_text(bench, call) -> None:
    (error,) = bench().run([call("x", constraint=Choices(("b", "a", "c", "a")))])
    assert type(error) is InvalidCall
    assert (error.field, error.value) == ("choices", ["b", "a", "c", "a"])
    assert error.allowed == "different texts; 'a' is given twice"


def test_a_constraint_without_a_way_on_is_the_callers_error(bench, call) -> None:
    """Six multiples cannot make seven items, which is found only while the answer is written."""
    multiples = {"type": "integer", "minimum": 0, "maximum": 500, "multipleOf": 100}
    schema = {"type": "array", "items": multiples, "uniqueItems": True, "minItems": 7}
    made = bench()
    made.pending_calls.constraints = made.constraints
    error, other = made.run([call("x", constraint=JsonSchema(schema), max_tokens=60), call("y")])
    assert type(error) is InvalidCall
    assert error.field == "constraint"
    assert str(error.value).startswith("JsonSchema (behind '[")
    assert "some text meets" in error.allowed
    assert not isinstance(other, Exception)
