"""Schemas as people write them: what our own path accepts, and that it accepts nothing wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forkroot.core.fsm.refusals import NotRegular
from forkroot.core.fsm.schema import schema_pattern
from forkroot.core.protocol import InvalidCall

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("schema_collection.json").read_text(encoding="utf-8")
)
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
def test_white_space_may_be_spread_as_the_layout_says(case: dict[str, Any]) -> None:
    spaced = re.compile(schema_pattern(case["schema"], whitespace="spaced"))
    indented = re.compile(schema_pattern(case["schema"], whitespace="indented"))
    for value in (value for value in case["valid"] if isinstance(value, dict | list) and value):
        assert spaced.fullmatch(json.dumps(value, ensure_ascii=False))
        assert indented.fullmatch(json.dumps(value, ensure_ascii=False, indent=2))


@pytest.mark.parametrize("case", OTHERS, ids=name_of)
def test_what_is_not_ours_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall) as caught:
        schema_pattern(case["schema"])
    assert caught.value.field == "json_schema"
    assert str(caught.value.value).startswith("#")


def test_our_own_path_takes_most_schemas_and_grammars_may_take_most_of_the_rest() -> None:
    refused = [case for case in OTHERS if not is_left_to_a_grammar(case["schema"])]
    assert len(CASES) >= 60
    assert len(OWN) / len(CASES) >= 0.8
    assert len(refused) / len(CASES) <= 0.15


def is_left_to_a_grammar(schema: dict[str, Any]) -> bool:
    try:
        schema_pattern(schema)
    except NotRegular:
        return True
    except InvalidCall:
        return False
    raise AssertionError("ours")
