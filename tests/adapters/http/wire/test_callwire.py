"""Values of the door as JSON and back, with everything that they may hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.http.wire.callwire import call_of, error_of, plain, plain_error, value_of
from forkroot.core.api.protocol import (
    Call,
    ForkrootError,
    InvalidCall,
    JsonSchema,
    Text,
    UnsupportedCall,
)

from ....carried import ANSWERS, CALLS, ERRORS, INFO, JSON, TEXT


def sent(data: Any) -> Any:
    """What arrives of plain data on the other side."""
    return json.loads(json.dumps(data, allow_nan=False))


@given(CALLS)
def test_calls_come_through(call: Call) -> None:
    assert call_of(sent(plain(call))) == call


@pytest.mark.parametrize("value", ANSWERS, ids=lambda value: type(value).__name__)
def test_answers_come_through(value: object) -> None:
    assert value_of(sent(plain(value))) == value


def test_what_a_backend_runs_comes_through() -> None:
    found = value_of(sent(plain(INFO)))
    assert (found.model, found.context_len, found.vocabulary_size) == ("m", 10, 20)
    assert (frozenset(found.features), found.counters) == (INFO.features, INFO.counters)


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_come_through_with_type_and_text(error: ForkrootError) -> None:
    found = error_of(sent(plain_error(error)))
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_an_error_of_a_package_is_decoded_as_its_nearest_base_class() -> None:
    class Special(UnsupportedCall):
        pass

    assert type(error_of(sent(plain_error(Special("a", 1, "b"))))) is UnsupportedCall


def test_defaults_are_left_out() -> None:
    assert plain(Call((Text("a"),))) == {
        "type": "Call",
        "prompt": [{"type": "Text", "text": "a"}],
    }


@pytest.mark.parametrize("schema", [{"a": object()}, {"a": b""}, {"a": math.nan}, {"a": {1: {2}}}])
def test_a_schema_that_is_no_json_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidCall):
        plain(Call((Text("a"),), constraint=JsonSchema(schema)))


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (None, "type"),
        ([], "type"),
        ({}, "type"),
        ({"type": ["Call"]}, "type"),
        ({"type": "Popen"}, "type"),
        ({"type": "Text", "text": "a"}, "type"),
        ({"type": "Call"}, "type"),
        ({"type": "Call", "prompt": [{"type": "Tokens"}]}, "type"),
        ({"type": "Call", "prompt": [{"type": "Image", "data": {"type": "bytes"}}]}, "type"),
        ({"type": "Call", "prompt": {"type": "pairs", "items": 3}}, "type"),
        ({"type": "Call", "prompt": {"type": "float", "value": "1"}}, "type"),
        ({"type": "Call", "prompt": [], "speed": 3}, "speed"),
        ({"type": "Call", "prompt": [], "hint": {"root": 3}}, "forkroot.root"),
    ],
    ids=str,
)
def test_what_is_no_call_is_refused(data: Any, field: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        call_of(data)
    assert caught.value.field == field


def test_a_value_of_great_depth_is_refused() -> None:
    data: Any = []
    for _ in range(100_000):
        data = [data]
    with pytest.raises(InvalidCall):
        call_of({"type": "Call", "prompt": data})


@given(
    st.recursive(
        JSON | TEXT,
        lambda inner: st.dictionaries(
            st.sampled_from(
                ["type", "prompt", "sampling", "items", "value", "base64", "text", "ids"]
            ),
            inner
            | st.sampled_from(["Call", "Text", "Tokens", "bytes", "pairs", "json", "Sampling"]),
            max_size=4,
        ),
        max_leaves=8,
    )
)
def test_whatever_comes_is_a_value_or_an_invalid_call(data: Any) -> None:
    try:
        found = call_of({"type": "Call", "prompt": [], **data} if isinstance(data, dict) else data)
        found.check()
    except InvalidCall:
        pass
