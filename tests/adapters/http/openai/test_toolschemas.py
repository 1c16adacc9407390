"""Parameters of tools that the model may call or not: refused where they are not a schema."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from forkroot.adapters.common.tools import ToolSpec
from forkroot.adapters.http.openai.toolschemas import check_schemas
from forkroot.core.api.protocol import InvalidCall


def check(schema: Any) -> None:
    check_schemas([ToolSpec("first"), ToolSpec("second", "", schema)], "function.")


@pytest.mark.parametrize(
    ("part", "place", "allowed"),
    [
        ({"type": "strng"}, "/type", "one of object"),
        ({"type": ["string", 5]}, "/type", "one of object"),
        ({"type": []}, "/type", "one of object"),
        ({"type": None}, "/type", "one of object"),
        ({"items": 5}, "/items", "a schema"),
        ({"items": [{"type": "a"}]}, "/items/0/type", "one of object"),
        ({"properties": ["a"]}, "/properties", "an object of names"),
        ({"properties": {"a/b": {"enum": "x"}}}, "/properties/a~1b/enum", "a list of values"),
        ({"required": True}, "/required", "a list of names"),
        ({"anyOf": []}, "/anyOf", "at least one schema"),
        ({"anyOf": [{"minimum": "1"}]}, "/anyOf/0/minimum", "a number"),
        ({"minLength": -1}, "/minLength", "an integer of 0 or more"),
        ({"maxItems": 1.5}, "/maxItems", "an integer of 0 or more"),
        ({"maxItems": float("nan")}, "/maxItems", "an integer of 0 or more"),
        ({"maxItems": True}, "/maxItems", "an integer of 0 or more"),
        ({"pattern": 5}, "/pattern", "a text"),
        ({"additionalProperties": "no"}, "/additionalProperties", "a schema"),
        ({"not": {"$ref": 5}}, "/not/$ref", "a text"),
    ],
)
def test_what_is_not_a_schema_is_refused_with_its_place_value_and_tool(
    part: dict[str, Any], place: str, allowed: str
) -> None:
    with pytest.raises(InvalidCall) as caught:
        check({"type": "object", "properties": {"p": part}})
    error = caught.value
    assert error.field == f"tools[1].function.parameters#/properties/p{place}"
    assert allowed in error.allowed
    assert error.allowed.endswith("(of the tool 'second')")


def test_parameters_that_are_not_an_object_are_refused() -> None:
    with pytest.raises(InvalidCall) as caught:
        check({"type": "string"})
    assert caught.value.field == "tools[1].function.parameters#/type"


class Colour(enum.Enum):
    red = "red"


class Inner(BaseModel):
    when: datetime.datetime
    price: Decimal = Decimal(1)
    tags: set[str] = Field(default_factory=set, max_length=3)


class Outer(BaseModel):
    """As Pydantic writes them."""

    inner: Inner | None = None
    pair: tuple[int, str] = (1, "a")
    colours: dict[str, Colour] = {}
    size: Literal[1, "big"] = Field(1, examples=[1])
    share: float = Field(0.5, ge=0, lt=1)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"properties": {}},
        {"type": ["object"]},
        Outer.model_json_schema(),
        {"type": "object", "properties": {"a": {"not": {}, "if": {}, "nullable": True}}},
        {"type": "object", "properties": {"a": {"exclusiveMinimum": True, "minimum": 1}}},
        {"type": "object", "properties": {"a": True, "type": {"const": None}, "b": {"enum": []}}},
        {"type": "object", "properties": {"a": {"x-made-up": 5, "default": {"type": "strng"}}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "minProperties": 1.0}}},
    ],
)
def test_what_is_a_schema_is_let_through_even_if_no_constraint_could_say_it(schema: Any) -> None:
    check(schema)


def test_a_deep_schema_is_looked_through() -> None:
    schema: dict[str, Any] = {"type": "strng"}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(InvalidCall):
        check(schema)
