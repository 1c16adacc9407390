"""Schemas as people write them: what patterns say of them, and what grammars; and nothing wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.grammar.ending import END
from forkroot.core.fsm.grammar.matcher import Library, Matcher
from forkroot.core.fsm.grammar.rules import schema_grammar
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.regex.errors import NotRegular
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("schema_collection.json").read_text(encoding="utf-8")
)
LIBRARY = Library(Vocabulary([bytes([byte]) for byte in range(256)], []))
OWN = [case for case in CASES if case["own"]]
OTHERS = [case for case in CASES if not case["own"]]


def name_of(case: dict[str, Any]) -> str:
    return str(case["name"])


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("case", OWN, ids=name_of)
def test_valid_instances_match_and_invalid_ones_do_not(case: dict[str, Any]) -> None:
    pattern = re.compile(schema_pattern(case["schema"]))
    assert [value for value in case["valid"] if not pattern.fullmatch(compact(value))] == []
    assert [value for value in case["invalid"] if pattern.fullmatch(compact(value))] == []


@pytest.mark.parametrize("case", OWN, ids=name_of)
def test_with_blanks_in_the_separators_instances_match_as_python_writes_them(
    case: dict[str, Any],
) -> None:
    spaced = re.compile(schema_pattern(case["schema"], separators=(", ", ": ")))
    for value in case["valid"]:
        assert spaced.fullmatch(json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize("case", OTHERS, ids=name_of)
def test_what_is_not_ours_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall) as caught:
        schema_pattern(case["schema"])
    assert caught.value.field == "json_schema"
    assert str(caught.value.value).startswith("#")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_grammar_of_any_schema_accepts_nothing_wrong(case: dict[str, Any]) -> None:
    matcher = matcher_or_none(case["schema"])
    if matcher is not None:
        assert [value for value in case["valid"] if not accepts(matcher, value)] == []
        assert [value for value in case["invalid"] if accepts(matcher, value)] == []


def test_most_schemas_are_ours_and_most_of_the_rest_are_grammars() -> None:
    taken = [case for case in OTHERS if is_left_to_a_grammar(case["schema"])]
    accepted = [case for case in taken if matcher_or_none(case["schema"]) is not None]
    own, whole = len(OWN) / len(CASES), (len(OWN) + len(accepted)) / len(CASES)
    assert len(CASES) >= 60
    assert own >= 0.8
    assert whole >= 0.95


def matcher_or_none(schema: dict[str, Any]) -> Matcher | None:
    try:
        return LIBRARY.compile(schema_grammar(schema), "json_schema")[1]
    except InvalidCall:
        return None


def accepts(matcher: Matcher, value: object) -> bool:
    """Whether a matcher takes the whole text of a value."""
    text = compact(value).encode()
    return bool(matcher.validate_tokens([*text, END]) == len(text) + 1)


def is_left_to_a_grammar(schema: dict[str, Any]) -> bool:
    try:
        schema_pattern(schema)
    except NotRegular:
        return True
    except InvalidCall:
        return False
    raise AssertionError("ours")
