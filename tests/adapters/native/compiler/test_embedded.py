"""Compiled programs on the embedded model: interpreted, compiled here, and compiled on a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import forkroot
from forkroot.core.api.protocol import Backend

from .programs import CASES, Case, seen

NAMES = (
    *("arguments Some text. 12", "chat Why?", "forks tea", "nested tea"),
    *("copied tea", "branching a", "branching b", "looked_up a", "whole Some text."),
    *("looped Which?", "sgl_chat Why?", "essay_judge tea Long.", "judge Root."),
)
CHOSEN = [case for case in CASES if case.name in NAMES]
OF_CACHE = ("cached_tokens", "root_tokens")


@pytest.fixture(scope="module")
def remote(server: str) -> Iterator[Backend]:
    with forkroot.connect(server) as backend:
        yield backend


def read(state: Any) -> dict[str, Any]:
    """All that can be read of a state, without figures that depend on what ran before."""
    found = seen(state)
    for meta in (*found["meta"].values(), found["totals"]):
        for of_one in meta if isinstance(meta, list) else [meta]:
            for name in OF_CACHE:
                of_one.pop(name, None)
    return rounded(found)


def rounded(value: Any) -> Any:
    """Log-probabilities differ in their last digits with what is computed together."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def test_all_chosen_programs_are_there() -> None:
    assert len(CHOSEN) == len(NAMES)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_tokens_variables_and_meta_are_those_of_the_interpreter_here_and_on_a_server(
    case: Case, local: Backend, remote: Backend
) -> None:
    settings = {"temperature": 0.0, "max_tokens": 5}
    compiled = case.program.compile(**case.fixed)
    own = case.program.run(**case.fixed, **case.arguments, **settings, backend=local)
    expected = read(own)
    assert expected["totals"]["prompt_tokens"] > 0
    assert read(compiled.run(**case.arguments, **settings, backend=local)) == expected
    there = compiled.run(**case.arguments, **settings, backend=remote, remote=True)
    assert read(there) == expected
