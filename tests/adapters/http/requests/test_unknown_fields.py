"""Fields that a route does not know: refused where they were misspelled, else ignored and
logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import httpx
import pytest

from forkroot.adapters.http.requests.reading import constraint_of
from forkroot.adapters.http.requests.unknown import Unknown, header_of, is_misspelled
from forkroot.adapters.http.server.runtime import Limits, Runtime
from forkroot.adapters.http.wire.wire import ChatRequest
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import SPACED, JsonSchema

from ....serving import serving
from ..conftest import Letters

MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Runtime(ScriptedBackend("yes"), Letters(), ("tiny",))) as url:
        yield url


@pytest.mark.parametrize(
    ("route", "body", "name", "suggested"),
    [
        ("chat/completions", {"messages": MESSAGES, "max_token": 5}, "max_token", "max_tokens"),
        ("chat/completions", {"messages": MESSAGES, "maxTokens": 5}, "maxTokens", "max_tokens"),
        ("chat/completions", {"massages": MESSAGES}, "massages", "messages"),
        ("completions", {"prompt": "x", "temprature": 0}, "temprature", "temperature"),
        ("responses", {"input": "x", "tool-choice": "auto"}, "tool-choice", "tool_choice"),
        ("chat/completions", {"messages": MESSAGES, "functions": [{}]}, "functions", "tools"),
        (
            *("chat/completions", {"messages": MESSAGES, "function_call": "auto"}),
            *("function_call", "tool_choice"),
        ),
    ],
)
def test_a_misspelled_field_is_refused_with_a_suggestion(
    url: str, route: str, body: dict[str, object], name: str, suggested: str
) -> None:
    response = httpx.post(f"{url}/v1/{route}", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "unknown_parameter", name)
    assert error["message"] == f"{name} is not a field of /v1/{route}; did you mean {suggested}?"


@pytest.mark.parametrize(
    ("field", "value", "name", "suggested"),
    [
        (
            "messages",
            [*MESSAGES, {"role": "user", "contents": "x"}],
            "messages[1].contents",
            "content",
        ),
        ("tools", [{"type": "function", "fucntion": {}}], "tools[0].fucntion", "function"),
        (
            *("tools", [{"type": "function", "function": {"name": "f", "parameter": {}}}]),
            *("tools[0].function.parameter", "parameters"),
        ),
        (
            *("response_format", {"type": "json_schema", "json_schema": {"strickt": True}}),
            *("response_format.json_schema.strickt", "strict"),
        ),
        ("stream_options", {"include_usages": True}, "stream_options.include_usages", "usage"),
    ],
)
def test_so_is_one_that_lies_in_another(
    url: str, field: str, value: object, name: str, suggested: str
) -> None:
    response = httpx.post(
        f"{url}/v1/chat/completions", json={"messages": MESSAGES, "model": "tiny", field: value}
    )
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unknown_parameter")
    assert error["param"] == name
    assert f"{suggested}?" in error["message"]


def test_a_field_whose_place_another_has_taken_may_be_null(url: str) -> None:
    body = {"messages": MESSAGES, "model": "tiny", "functions": None, "function_call": None}
    assert httpx.post(f"{url}/v1/chat/completions", json=body).status_code == 200


def test_fields_of_others_in_messages_are_left_alone(url: str) -> None:
    message = {**MESSAGES[0], "reasoning_content": None, "cache_control": {"type": "ephemeral"}}
    response = httpx.post(
        f"{url}/v1/chat/completions", json={"messages": [message], "model": "tiny"}
    )
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("body", "name", "suggested"),
    [
        ({"text": "x", "top_logprobs_nums": 1}, "top_logprobs_nums", "top_logprobs_num"),
        ({"text": "x", "sampling_params": {"temprature": 0}}, *["sampling_params.temp"] * 2),
    ],
)
def test_so_is_one_of_sglangs(url: str, body: dict[str, object], name: str, suggested: str) -> None:
    response = httpx.post(f"{url}/generate", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unknown_parameter")
    assert error["message"].startswith(name) and f"did you mean {suggested}" in error["message"]


def test_a_constraint_that_nobody_knows_is_refused_and_not_dropped(url: str) -> None:
    for extra in ({"regx": "a"}, {"structural_tag": "{}"}):
        body = {"messages": MESSAGES, "structured_outputs": {"whitespace_pattern": " ", **extra}}
        error = httpx.post(f"{url}/v1/chat/completions", json=body).json()["error"]
        assert error["param"] == f"structured_outputs.{next(iter(extra))}"
        assert "one of json, regex, choice" in error["message"]


def test_empty_choices_and_stops_are_refused_in_the_words_of_the_request(url: str) -> None:
    for fields, param in (
        ({"choices": []}, "choices"),
        ({"guided_choice": ["a", ""]}, "guided_choice"),
        ({"stop": ""}, "stop"),
    ):
        body = {"messages": MESSAGES, **fields}
        error = httpx.post(f"{url}/v1/chat/completions", json=body).json()["error"]
        assert error["param"] == param
        assert error["message"].startswith(f"invalid {param}={fields[param]!r}: expected ")
        assert "non-empty texts" in error["message"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_other_unknown_fields_are_ignored_and_named_in_a_header(
    url: str, is_streamed: bool
) -> None:
    body = {"messages": MESSAGES, "stream": is_streamed, "user": "me", "top_a": 1, "ü\n": 2}
    response = httpx.post(f"{url}/v1/chat/completions", json=body)
    assert response.status_code == 200
    assert response.headers["X-Ignored-Fields"] == "top_a, user"
    known = httpx.post(f"{url}/v1/chat/completions", json={"messages": MESSAGES})
    assert "X-Ignored-Fields" not in known.headers


SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "colour, ü": 1, "maxLenght": 2}}}
IN_SCHEMA = ("#/properties/a/colour%2C%20%C3%BC", "#/properties/a/maxLenght")


def format_of(schema: object, **options: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **options}}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"json_schema": SCHEMA}, "json_schema"),
        ({"json_schema": json.dumps(SCHEMA)}, "json_schema"),
        ({"guided_json": SCHEMA}, "guided_json"),
        ({"structured_outputs": {"json": SCHEMA}}, "structured_outputs.json"),
        ({"response_format": format_of(SCHEMA)}, "response_format.json_schema.schema"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
            "tools[0].function.parameters",
        ),
    ],
)
def test_unknown_keywords_of_schemas_are_named_in_the_header(
    url: str, fields: dict[str, object], pointer: str
) -> None:
    body = {"messages": MESSAGES, "user": "me", **fields}
    response = httpx.post(f"{url}/v1/chat/completions", json=body)
    expected = ", ".join(["user", *(pointer + it for it in IN_SCHEMA)])
    assert response.headers["X-Ignored-Fields"] == expected


def test_a_strict_tool_may_have_no_unknown_keywords(url: str) -> None:
    function = {"name": "f", "parameters": SCHEMA, "strict": True}
    body = {"messages": MESSAGES, "tools": [{"type": "function", "function": function}]}
    response = httpx.post(f"{url}/v1/chat/completions", json=body)
    assert response.status_code == 400
    pointer = "tools[0].function.parameters#/properties/a/colour, ü"
    assert response.json()["error"]["param"] == pointer


def test_a_strict_format_reaches_the_constraint_as_such() -> None:
    requested = constraint_of(
        ChatRequest(messages=[], response_format=format_of(SCHEMA, strict=True)), Limits()
    )
    assert requested is not None and requested.constraint == JsonSchema(SCHEMA, SPACED, strict=True)


def test_an_unknown_field_is_reported_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    unknown = Unknown("/v1/x", ["model", "prompt"])
    with caplog.at_level(logging.WARNING, "forkroot.http"):
        for body in ({"user": 1}, {"user": 2, "model": 3}, {"beam\n": 1}, [1]):
            unknown.ignored(body)
    wanted_text = "/v1/x ignores the field {!r}, which it does not know (logged once)"
    assert caplog.messages == [wanted_text.format("user"), wanted_text.format("beam\n")]


@pytest.mark.parametrize(
    ("name", "known", "is_suggested"),
    [
        ("max_token", "max_tokens", True),
        ("max_tokenss", "max_tokens", True),
        ("max_tokesn", "max_tokens", True),
        ("max_takens", "max_tokens", True),
        ("max_tks", "max_tokens", False),
        ("MaxTokens", "max_tokens", True),
        ("max_completion_tokens", "max_tokens", False),
        ("seeds", "seed", True),
        ("k", "n", False),
        ("models", "model", False),  # of another server
        ("", "top_p", False),
    ],
)
def test_one_edit_is_a_misspelling(name: str, known: str, is_suggested: bool) -> None:
    assert is_misspelled(name, known) is is_suggested


def test_the_header_holds_a_bounded_number_of_plain_names() -> None:
    names = [*(f"field_{number:03}" for number in range(50)), "a b", "a\r\nb", "x" * 100]
    assert header_of(names) == ", ".join(f"field_{number:03}" for number in range(16))
