"""Random typed signatures: the types that programs use, one inside another."""

from __future__ import annotations

import datetime
import enum
import random
from typing import Any, Literal, Optional

import dspy
from pydantic import BaseModel, Field, create_model


class Colour(enum.Enum):
    """Values that are texts, one with a blank."""

    RED = "red"
    DARK = "dark blue"
    ODD = " [odd] "


class Level(enum.Enum):
    """Values that are not texts: DSPy reads their names."""

    LOW = 1
    HIGH = 2.5
    NONE = None


class Tree(BaseModel):
    """Refers to itself."""

    label: str
    kids: list[Tree]


LITERALS = (
    Literal["yes", "no"],
    Literal["a b", "it's", '"quoted"', " padded "],
    Literal[1, 2, 30],
    Literal[True, "maybe", None],
    Literal["12", "null", "[x]"],
)
BOUNDED = (
    (int, {"ge": 1, "le": 5}),
    (float, {"ge": 0, "le": 1}),
    (str, {"max_length": 20}),
    (str, {"min_length": 2}),
    (list[int], {"max_length": 3}),
)
LEAVES: tuple[Any, ...] = (str, int, float, bool, Colour, Level, datetime.date, *LITERALS)


def random_type(rng: random.Random, depth: int = 2) -> Any:
    """A type of these, nested at most so deep."""
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(LEAVES)
    inner = random_type(rng, depth - 1)
    match rng.randrange(9):
        case 0 | 1:
            return list[inner]
        case 2:
            return dict[str, inner]
        case 3:
            return Optional[inner]  # noqa: UP045 - built from a value
        case 4:
            return tuple[inner, random_type(rng, depth - 1)]
        case 5:
            return rng.choice((Tree, dict[str, Any], set[int], int | str, list[Tree]))
    return random_model(rng, depth)


def random_model(rng: random.Random, depth: int) -> type[BaseModel]:
    """A model of one to three fields."""
    fields: dict[str, Any] = {}
    for place in range(rng.randint(1, 3)):
        if rng.random() < 0.3:
            kind, bounds = rng.choice(BOUNDED)
            fields[f"part_{place}"] = (kind, Field(**bounds))
        else:
            kind = random_type(rng, depth - 1)
            default = rng.choice((..., ..., None)) if kind is str else ...
            fields[f"part_{place}"] = (kind if default is ... else str | None, default)
    return create_model(f"Model{rng.randrange(10**6)}", **fields)


def random_signature(rng: random.Random) -> type[dspy.Signature]:
    """One to three outputs of random types."""
    fields: dict[str, Any] = {"question": (str, dspy.InputField())}
    for place in range(rng.randint(1, 3)):
        fields[f"out_{place}"] = (random_type(rng), dspy.OutputField())
    return dspy.Signature(fields, "Answer the question.")
