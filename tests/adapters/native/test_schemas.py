"""Classes as schemas: what Pydantic says of them compiles, and what is written fits them."""

from __future__ import annotations

import datetime
import enum
import re
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from forkroot.adapters.native import function, gen
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import InvalidCall, JsonSchema
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.local import LocalBackend


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Place(BaseModel):
    town: Annotated[str, Field(pattern="^[A-Z][a-z]{2,8}$")]
    number: Annotated[int, Field(ge=1, le=99)]


class Person(BaseModel):
    """Everything that a record commonly has."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=12)]
    born: datetime.date
    colour: Colour
    kind: Literal["cat", "dog"] = Field(alias="type")
    home: Place
    second_home: Place | None
    weight: Annotated[float, Field(gt=0, lt=100)]
    tags: Annotated[list[Colour], Field(max_length=2)]
    count: Annotated[int, Field(multiple_of=5, ge=0, le=50)]
    note: Annotated[str, Field(max_length=8)] = "none"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


@dataclass
class Point:
    x: int
    y: int = 0


class Box(TypedDict):
    width: int


EXAMPLES: list[tuple[Any, str]] = [
    (int, "-3"),
    (int | None, "null"),
    (Place | None, '{"town":"Oakham","number":7}'),
    (Literal["a", 1, None], "1"),
    (Colour, '"red"'),
    (Annotated[str, Field(min_length=2, max_length=3)], '"ab"'),
    (Annotated[int, Field(gt=3, le=5)], "4"),
    (list[Place], '[{"town":"Oakham","number":7}]'),
    (set[Colour], '["red"]'),
    (tuple[int, str], '[1,"a"]'),
    (dict[str, int], '{"a":1}'),
    (Cat | Dog, '{"kind":"dog","name":"Rex"}'),
    (Annotated[Cat | Dog, Field(discriminator="kind")], '{"kind":"cat","lives":9}'),
    (datetime.date, '"2024-02-29"'),
    (datetime.datetime, '"2024-02-29T10:00:00Z"'),
    (datetime.time, '"10:00:00Z"'),
    (uuid.UUID, '"12345678-1234-4234-8234-123456789abc"'),
    (Decimal, '"1.50"'),
    (bool, "true"),
]


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=[str(kind) for kind, _ in EXAMPLES])
def test_the_schema_of_a_field_compiles_and_takes_what_the_field_takes(
    kind: Any, text: str
) -> None:
    class Record(BaseModel):
        value: kind

    written = f'{{"value":{text}}}'
    Record.model_validate_json(written)
    node = gen("x", json_schema=Record)
    assert re.fullmatch(schema_pattern(node.constraint.schema), written)


@pytest.mark.parametrize("kind", [Person, Point, Box])
def test_a_class_is_the_same_as_its_schema_in_either_place(kind: Any) -> None:
    node = gen("x", json_schema=kind)
    assert isinstance(node.constraint, JsonSchema)
    assert node.constraint.schema["type"] == "object"
    assert gen("x", dtype=kind) == node


@pytest.mark.parametrize("field", ["dtype", "json_schema"])
def test_a_class_of_which_no_schema_can_be_made_is_refused_with_the_reason(field: str) -> None:
    @dataclass
    class Odd:
        work: object.__class__

    class Never:
        @classmethod
        def model_json_schema(cls) -> None:
            raise RuntimeError("no schema today\nand more")

    with pytest.raises(InvalidCall, match=r"RuntimeError: no schema today\)$") as caught:
        gen("x", **{field: Never})
    assert caught.value.field == field
    with pytest.raises(InvalidCall, match="a class that has a JSON schema"):
        gen("x", **{field: Odd})


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"dtype": dict}, "dtype"), ({"dtype": Place(town="Oakham", number=1)}, "dtype"),
     ({"json_schema": dict}, "json_schema"), ({"json_schema": Colour}, "json_schema")],
)  # fmt: skip
def test_what_is_not_a_schema_is_refused_with_what_is(arguments: Any, field: str) -> None:
    with pytest.raises(InvalidCall, match="a Pydantic model, a dataclass, a TypedDict") as caught:
        gen("x", **arguments)
    assert caught.value.field == field


def test_what_a_model_writes_is_one_of_the_class() -> None:
    @function
    def program(s, number):
        s += f"Person {number} as JSON:" + gen("person", 200, dtype=Person, seed=number)
        s += "\n" + gen("point", 40, json_schema=Point, seed=number)

    with LocalBackend.from_folder("tiny", num_slots=8192, context_len=512) as backend:
        states = program.run_batch(
            [{"number": number} for number in range(6)], backend=backend, raise_errors=True
        )
    for state in states:
        assert Person.model_validate_json(state["person"]).name
        assert state.get_meta_info("person")["forced"][0] == (0, len('{"name": "'))
        assert re.fullmatch(r'\{"x": -?\d+(, "y": -?\d+)?\}', state["point"], re.ASCII)


def test_a_regular_expression_or_grammar_is_text_that_can_be_encoded() -> None:
    for field in ("regex", "grammar"):
        with pytest.raises(InvalidCall, match="text without lone surrogates") as caught:
            gen("x", **{field: "a\ud800"})
        assert caught.value.field == field


WRONG = {"type": "object", "properties": {"size": {"type": "strin"}}, "required": ["size"]}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_fault_in_a_schema_is_reported_with_its_place_and_value(is_streamed: bool) -> None:
    fault = InvalidCall("json_schema", "#/properties/size/type", "one of object, array")

    @function
    def program(s):
        s += "A size: " + gen("size", json_schema=WRONG)

    with pytest.raises(InvalidCall) as caught:
        state = program.run(backend=ScriptedBackend([fault]), stream=is_streamed)
        list(state.text_iter())
    error = caught.value
    assert (error.field, error.value) == ("json_schema#/properties/size/type", "strin")
    assert error.allowed == "one of object, array"


def test_a_decimal_is_written_as_one() -> None:
    class Price(BaseModel):
        amount: Annotated[Decimal, Field(ge=0)]
        least: Decimal | None

    @dataclass
    class Bare:
        amount: Decimal

    for kind in (Price, Bare):
        node = gen("x", json_schema=kind)
        assert isinstance(node.constraint, JsonSchema)
        amount = node.constraint.schema["properties"]["amount"]
        assert ("anyOf" in amount) == (kind is Bare)  # a text cannot be held to bounds
        assert gen("x", dtype=kind) == node
        written = schema_pattern(node.constraint.schema)
        texts = [f'{{"amount":{value}}}' for value in ("1.5", '"1.50"', '"many"', '""', '"1.5.0"')]
        taken = [text for text in texts if re.fullmatch(written, text)]
        assert taken == (texts[:2] if kind is Bare else [])  # where `least` is wanted, too

    @function
    def price(s):
        s += "The price is" + gen("x", dtype=Price, max_tokens=60)

    with LocalBackend.from_folder("tiny", num_slots=512, dtype="float32") as backend:
        for seed in range(4):
            result = price.run(backend=backend, temperature=2.0, seed=seed)["x"]
            assert Price.model_validate_json(result).amount >= 0


def test_a_schema_as_text_that_is_not_json_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidCall, match=r"this text is not JSON \(Expecting property name .* 2 "):
        gen("x", json_schema="{bad json")
