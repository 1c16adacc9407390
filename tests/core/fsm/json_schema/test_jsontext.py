"""A schema is written as `json.dumps` does, and no more of it is looked at than may be written."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.json_schema import jsontext
from forkroot.core.fsm.json_schema.jsontext import room_left, schema_text

LEAVES = (1, -2.5, None, True, 'é"\\x', "a" * 40, 10**20, float("inf"))
NAMES = ("name", 'a "name"', "", 1, 2.5, None, True)


class Counted(dict[str, Any]):
    """Counts how many of its names are read."""

    num_seen = 0

    def __iter__(self) -> Any:
        for name in super().__iter__():
            self.num_seen += 1
            yield name


def some_value(random: Random, depth: int) -> Any:
    kind = random.random() if depth else 0
    if kind < 0.3:
        return random.choice(LEAVES)
    count = random.randrange(9)
    if kind < 0.6:
        return [some_value(random, depth - 1) for _ in range(count)]
    return {random.choice(NAMES): some_value(random, depth - 1) for _ in range(count)}


@pytest.mark.parametrize("piece", [10, 60, 300])
def test_pieces_make_the_text_that_one_call_makes(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(piece)
    monkeypatch.setattr(jsontext, "PAUSE", 0)
    monkeypatch.setattr(jsontext, "PIECE", piece)
    monkeypatch.setattr(jsontext, "GROUP", 3)
    for _ in range(100):
        value = some_value(random, 5)
        assert schema_text(value) == json.dumps(value)


def test_a_large_schema_is_written_in_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"enum": [f"value {i}" for i in range(30_000)]}
    whole, dumps, sizes = json.dumps(schema), json.dumps, list[int]()

    def noted(value: object) -> str:
        text = dumps(value)
        sizes.append(len(text))
        return text

    monkeypatch.setattr(jsontext, "PAUSE", 0)
    monkeypatch.setattr("json.dumps", noted)
    assert schema_text(schema) == whole
    assert len(sizes) > 100 and max(sizes) < 25_000


def test_no_more_of_an_object_is_looked_at_than_may_be_written() -> None:
    properties = Counted({f"property {i}": True for i in range(360_000)})
    with pytest.raises(InvalidCall, match="at most 4000000 characters"):
        schema_text({"properties": properties})
    assert 0 < properties.num_seen <= 120_000


def test_a_list_is_refused_by_its_length() -> None:
    with pytest.raises(InvalidCall, match="at most 4000000 characters"):
        schema_text({"enum": [object()] * 1_200_000})


def test_levels_are_counted_up_to_the_most_that_are_allowed() -> None:
    def nested(depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = Counted()
        for _ in range(depth):
            schema = Counted(items=schema)
        return schema

    assert room_left(nested(900), 100_000) > 0
    deep = nested(10_000)
    with pytest.raises(InvalidCall, match="at most 1000 levels"):
        schema_text(deep)
    seen = 0
    while deep:
        seen += deep.num_seen  # type: ignore[attr-defined]
        deep = deep["items"]
    assert seen <= 1_001  # the error shows the first of them again


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("abc", 100 - 4 - 3),
        (12345, 100 - 4),
        ([], 100 - 4),
        ([1, "ab"], 100 - 4 - 8 - 2),
        ({"ab": [1]}, 100 - 4 - 8 - 2 - 4),
    ],
)
def test_what_is_left_of_the_room(value: Any, left: int) -> None:
    assert room_left(value, 100) == left
