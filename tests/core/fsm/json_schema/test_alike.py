"""Texts of a value, in all their spellings, are followed to their end; those of others are not."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from forkroot.core.fsm.json_schema.alike import Alike
from forkroot.core.fsm.json_schema.patterns.spelling import value_key

TEXTS = ("", "a", "ab", "é", "😀", '"', "\\", "\n", "a\u0000", "1")
NUMBERS = (0, 1, -1, 10, 12, 0.5, -2.25, 1e30, 1e-7, 100.0)


def some_value(rng: random.Random, depth: int = 2) -> Any:
    kind = rng.randrange(6 if depth else 4)
    if kind < 4:
        return (None, rng.random() < 0.5, rng.choice(NUMBERS), rng.choice(TEXTS))[kind]
    if kind == 4:
        return [some_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return {rng.choice(TEXTS): some_value(rng, depth - 1) for _ in range(rng.randrange(3))}


def some_text(rng: random.Random, value: Any) -> str:
    """One of the spellings of a value."""
    blank = rng.choice(("", "", " ", "\n "))
    match value:
        case True | False | None:
            return json.dumps(value)
        case int() | float():
            return rng.choice(spellings(value))
        case str():
            return '"' + "".join(some_char(rng, char) for char in value) + '"'
        case list():
            return f"[{blank}{f'{blank},'.join(some_text(rng, item) for item in value)}{blank}]"
    items = rng.sample([*value.items()], len(value))
    pairs = (f"{some_text(rng, name)}{blank}:{some_text(rng, item)}" for name, item in items)
    return "{" + f"{blank},".join(pairs) + blank + "}"


def spellings(number: int | float) -> list[str]:
    texts = [json.dumps(number), f"{number:e}", f"{number:.3E}", f"{number:.9f}"]
    texts += [f"{text}0" for text in texts if "." in text and "e" not in text.lower()]
    return [text for text in texts if json.loads(text) == number and len(text) < 16]


def some_char(rng: random.Random, char: str) -> str:
    plain = json.dumps(char, ensure_ascii=False)[1:-1]
    units = char.encode("utf-16-be")
    escaped = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return rng.choice((plain, plain, escaped))


def followed(value: Any, text: str) -> Alike | None:
    here: Alike | None = Alike.to(value)
    for byte in text.encode():
        here = here.after(byte, has_exponent="e" in text.lower()) if here is not None else None
    return here


@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_followed_just_when_it_is_one_of_the_value(seed: int) -> None:
    rng = random.Random(seed)
    values = [some_value(rng) for _ in range(30)]
    for value in values:
        text = some_text(rng, value)
        assert json.loads(text) == value
        assert followed(value, text) is not None, (value, text)
        assert followed([value], f"[{text} ]") == Alike(())
        for other in values:
            is_equal = value_key(other) == value_key(value)
            assert (followed([other], f"[{text}]") is not None) is is_equal, (other, text)


@pytest.mark.parametrize(
    ("value", "written", "rests"),
    [
        ("ab", '"a', {b'b"'}),
        ('a"', '"a', {b'\\""'}),
        ([12, 3], "[1", {b"2"}),
        ([12, 3], "[12,3", {b""}),
        ([12], "[12 ", {b"]"}),
        ({"ab": 1, "ac": 2}, '{"a', {b'b"', b'c"'}),
        ({"ab": 1, "ac": 2}, '{"ac": 2, "', {b'ab"'}),
        ({"a": True}, '{"a": t', {b"rue"}),
        ({"a": 1}, '{"a"', {b":"}),
        ({}, "{", {b"}"}),
    ],
)
def test_how_a_text_may_go_on(value: Any, written: str, rests: set[bytes]) -> None:
    here = followed(value, written)
    assert here is not None
    assert set(here.rests) == rests
