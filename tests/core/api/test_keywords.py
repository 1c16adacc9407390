"""A keyword that nobody knows is refused by name, with what was meant or where it goes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest

from forkroot import Call, Chat, ForkHint, InvalidCall, JsonSchema, Sampling, Text, function, gen
from forkroot.core.api.keywords import (
    ENGINE,
    KeywordOwner,
    Parameters,
    UnknownKeyword,
    suggestion_for,
)


@function
def program(s: Any, question: str) -> None:
    s += question


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Sampling(temprature=3), "temprature=3: .*did you mean temperature?"),
        (lambda: Sampling(max_new_tokens=3), "did you mean max_tokens?"),
        (lambda: replace(Sampling(), top_P=1), "did you mean top_p?"),
        (lambda: Call((Text("a"),), timeout=3), "did you mean deadline?"),
        (lambda: Call((), temperature=0), r"temperature is of Sampling: Call\(..., Sampling\(temp"),
        (lambda: JsonSchema({}, seperators=1), "did you mean separators?"),
        (lambda: Chat((), tool=()), "did you mean tools?"),
        (lambda: ForkHint("a", branch=2), "did you mean branches?"),
        (lambda: gen(timeout=3), r"; deadline is of a whole run: program.run\(..., deadline="),
        (lambda: gen(num_slots=3), r"; num_slots is of the engine: connect\(..., num_slots=...\)$"),
        (lambda: program.run("a", num_slot=3), r"; num_slots is of the engine: connect\("),
        (lambda: program.run("a", timeout=3), "did you mean deadline?"),
        (lambda: program.run("a", max_new_tokens=3), "did you mean max_tokens?"),
    ],
)
def test_a_misspelled_keyword_is_a_typed_error_with_a_suggestion(
    make: Callable[[], object], hint: str
) -> None:
    with pytest.raises(UnknownKeyword, match=hint) as caught:
        make()
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, InvalidCall)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_values_of_the_protocol_are_made_and_described_as_dataclasses_are() -> None:
    assert Sampling(7, temperature=0) == replace(Sampling(max_tokens=7), temperature=0)
    assert list(signature(Call).parameters)[:2] == ["prompt", "sampling"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'prompt'"):
        Call()  # type: ignore[call-arg]


def test_what_is_known_here_comes_before_what_is_known_elsewhere() -> None:
    place = KeywordOwner(("seeds", "hint"), "{name} is elsewhere")
    assert suggestion_for("seed", ("seeds",), place) == "; did you mean seeds?"
    assert suggestion_for("hint", ("hints",), place) == "; hint is elsewhere"
    assert suggestion_for("colour", ("seeds",), place, ENGINE) == ""


def test_parameters_that_take_any_keyword_refuse_none() -> None:
    Parameters(frozenset(), is_open=True).check({"a": 1})
    with pytest.raises(UnknownKeyword, match="invalid a=1: expected no keywords"):
        Parameters(frozenset()).check({"a": 1})
