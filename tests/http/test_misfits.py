"""Bodies that do not fit: the field, what it holds and what is allowed, on every route."""

from __future__ import annotations

from typing import Any, Literal

import httpx
import pytest

from forkroot.adapters.http.misfits import in_words

SAID = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (str, "a text"),
        (int | None, "an integer or null"),
        (bool | None, "true or false, or null"),
        (str | list[str] | None, "a text, a list of texts, or null"),
        (list[int | None], "a list of integers or nulls"),
        (list[list[float]], "a list of lists of numbers"),
        (dict[str, Any] | str, "an object or a text"),
        (Literal["a", "b"] | None, "'a' or 'b', or null"),
    ],
)
def test_types_are_told_in_words(kind: Any, words: str) -> None:
    assert in_words(kind) == words


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (CHAT, [], "body=[] is not allowed; allowed: an object"),
        (CHAT, {"messages": 3}, "messages=3 is not allowed; allowed: a list of objects"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [3]}]},
            "messages[0].content=[3] is not allowed;"
            " allowed: a text, a list of texts or objects, or null",
        ),
        (
            CHAT,
            {"messages": SAID, "temperature": "hot"},
            "temperature='hot' is not allowed; allowed: a number or null",
        ),
        (
            CHAT,
            {"messages": SAID, "logit_bias": {"5": "x"}},
            "logit_bias.5='x' is not allowed; allowed: a number",
        ),
        (
            CHAT,
            {"messages": SAID, "top_logprobs": 99},
            "top_logprobs=99 is not allowed; allowed: 0 to 20, or null",
        ),
        (
            "/v1/completions",
            {"prompt": {}},
            "prompt={} is not allowed; allowed: a text, a list of integers, a list of texts,"
            " or a list of lists of integers",
        ),
        (
            "/v1/completions",
            {"prompt": "a", "logprobs": 99},
            "logprobs=99 is not allowed; allowed: 0 to 20, or null",
        ),
        (
            "/v1/responses",
            {"input": 3},
            "input=3 is not allowed; allowed: a text or a list of objects",
        ),
        (
            "/v1/responses",
            {"input": "a", "tools": [{"type": "function", "name": "a b"}]},
            "tools[0].name='a b' is not allowed;"
            " allowed: 1 to 64 letters, digits, dots, dashes and underscores",
        ),
        (
            "/generate",
            {"text": "a", "sampling_params": {"n": "x"}},
            "sampling_params.n='x' is not allowed; allowed: an integer or null",
        ),
        (
            "/generate",
            {"text": ["a"], "sampling_params": [{"n": "x"}]},
            "sampling_params[0].n='x' is not allowed; allowed: an integer or null",
        ),
        (
            "/generate",
            {"text": "a", "sampling_params": {"json_schema": '{"type": "no"}'}},
            "sampling_params.json_schema#/type='no' is not allowed; allowed: one of object, array,"
            " string, number, integer, boolean, null, or a list of these",
        ),
    ],
)
def test_the_field_its_value_and_what_is_allowed_are_told(
    server: str, path: str, body: Any, message: str
) -> None:
    told = httpx.post(server + path, json=body)
    assert told.status_code == 400
    assert told.json()["error"]["message"] == message
    assert told.json()["error"]["param"] == message.partition("=")[0]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {}, "messages"),
        (CHAT, {"messages": [{}]}, "messages[0].role"),
        ("/generate", {}, "text"),
    ],
)
def test_what_is_missing_is_told(server: str, path: str, body: Any, param: str) -> None:
    error = httpx.post(server + path, json=body).json()["error"]
    assert error["param"] == param
    assert "; allowed: " in error["message"]


def test_a_long_value_is_cut(server: str) -> None:
    error = httpx.post(server + CHAT, json={"messages": "x" * 100_000}).json()["error"]
    assert error["message"].startswith("messages='xxx")
    assert error["message"].endswith("... is not allowed; allowed: a list of objects")
    assert len(error["message"]) < 200


def test_a_body_that_does_not_say_that_it_is_json_is_told_so(server: str) -> None:
    curls_own = "application/x-www-form-urlencoded"
    for headers, shown in ({"Content-Type": curls_own}, f"'{curls_own}'"), ({}, "None"):
        told = httpx.post(server + CHAT, content=b"{}", headers=headers)
        assert told.status_code == 400
        assert told.json()["error"]["param"] == "Content-Type"
        assert told.json()["error"]["message"] == (
            f"Content-Type={shown} is not allowed; allowed: application/json"
            " (of curl: -H 'Content-Type: application/json')"
        )


@pytest.mark.parametrize("route", [CHAT, "/tokenize", "/v1/prefixes"])
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_a_message_that_says_nothing_is_refused(server: str, route: str, role: str) -> None:
    for content in ({}, {"content": None}, {"content": []}):
        hello = {"role": "user", "content": "Hello"}
        body = {"messages": [hello, {"role": role, **content}]}
        told = httpx.post(server + route, json=body)
        assert told.status_code == 400
        error = told.json()["error"]
        assert (error["param"], error["code"]) == ("messages[1].content", "invalid_value")
        assert "is not allowed; allowed: a text, or a list of at least one part" in error["message"]


def test_a_message_may_be_empty_or_call_a_tool_instead(server: str) -> None:
    call = {"function": {"name": "square", "arguments": '{"n": 3}'}}
    for message in (
        {"role": "user", "content": ""},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": [], "tool_calls": [call]},
    ):
        told = httpx.post(server + "/tokenize", json={"messages": [message]})
        assert told.status_code == 200


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("/chat/completions", "; did you mean /v1/chat/completions?"),
        ("/v1/v1/chat/completions", "; did you mean /v1/chat/completions?"),
        ("/v1/chat/completion", "; did you mean /v1/chat/completions?"),
        ("/v1/tokenize", "; did you mean /tokenize?"),
        ("/v1/embeddings", ""),
        ("/" + "x" * 5000, ""),
    ],
)
def test_a_route_that_is_none_is_told_with_the_one_that_was_meant(
    server: str, asked: str, meant: str
) -> None:
    told = httpx.post(server + asked, json={})
    assert told.status_code == 404
    assert told.json()["error"]["message"] == f"POST {asked} is no route of this server{meant}"


def test_a_route_of_another_method_was_not_meant(server: str) -> None:
    told = httpx.get(f"{server}/v1/responses/x")
    assert told.json()["error"]["message"] == "GET /v1/responses/x is no route of this server"


def test_a_method_that_a_route_has_not_is_told_with_those_that_it_has(server: str) -> None:
    told = httpx.get(server + CHAT)
    assert told.status_code == 405
    assert told.json()["error"]["message"] == f"GET is not allowed for {CHAT}; allowed: POST"
