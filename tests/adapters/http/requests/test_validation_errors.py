"""Bodies that do not fit: the field, what it holds and what is allowed, on every route."""

from __future__ import annotations

from typing import Any, Literal

import httpx
import pytest

from forkroot.adapters.http.requests.validation_errors import describe_type

MESSAGES = [{"role": "user", "content": "hi"}]
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
def test_types_are_reported_in_words(kind: Any, words: str) -> None:
    assert describe_type(kind) == words


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (CHAT, [], "invalid body=[]: expected an object"),
        (CHAT, {"messages": 3}, "invalid messages=3: expected a list of objects"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [3]}]},
            "invalid messages[0].content=[3]: expected a text, a list of texts or objects, or null",
        ),
        (
            CHAT,
            {"messages": MESSAGES, "temperature": "hot"},
            "invalid temperature='hot': expected a number or null",
        ),
        (
            CHAT,
            {"messages": MESSAGES, "logit_bias": {"5": "x"}},
            "invalid logit_bias.5='x': expected a number",
        ),
        (
            CHAT,
            {"messages": MESSAGES, "top_logprobs": 99},
            "invalid top_logprobs=99: expected 0 to 20, or null",
        ),
        (
            CHAT,
            {"messages": MESSAGES, "stream_options": {"include_usage": True}},
            "invalid stream_options={'include_usage': True}: expected null, unless stream is true",
        ),
        (
            "/v1/completions",
            {"prompt": "a", "stream": False, "stream_options": {}},
            "invalid stream_options={}: expected null, unless stream is true",
        ),
        ("/v1/completions", {"prompt": []}, "invalid prompt=[]: expected at least one token"),
        (
            "/v1/completions",
            {"prompt": [[5], []]},
            "invalid prompt=[]: expected at least one token",
        ),
        ("/v1/completions", {"prompt": ""}, "invalid prompt='': expected at least one token"),
        ("/generate", {"input_ids": []}, "invalid input_ids=[]: expected at least one token"),
        (
            "/v1/completions",
            {"prompt": {}},
            "invalid prompt={}: expected a text, a list of integers, a list of texts,"
            " or a list of lists of integers",
        ),
        (
            "/v1/completions",
            {"prompt": "a", "logprobs": 99},
            "invalid logprobs=99: expected 0 to 20, or null",
        ),
        (
            "/v1/responses",
            {"input": 3},
            "invalid input=3: expected a text or a list of objects",
        ),
        (
            "/v1/responses",
            {"input": "a", "tools": [{"type": "function", "name": "a b"}]},
            "invalid tools[0].name='a b':"
            " expected 1 to 64 letters, digits, dots, dashes and underscores",
        ),
        (
            "/generate",
            {"text": "a", "sampling_params": {"n": "x"}},
            "invalid sampling_params.n='x': expected an integer or null",
        ),
        (
            "/generate",
            {"text": ["a"], "sampling_params": [{"n": "x"}]},
            "invalid sampling_params[0].n='x': expected an integer or null",
        ),
        (
            "/generate",
            {"text": "a", "sampling_params": {"json_schema": '{"type": "no"}'}},
            "invalid sampling_params.json_schema#/type='no': expected one of object, array,"
            " string, number, integer, boolean, null, or a list of these",
        ),
    ],
)
def test_the_field_its_value_and_what_is_allowed_are_reported(
    server: str, path: str, body: Any, message: str
) -> None:
    answer = httpx.post(server + path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == message
    assert answer.json()["error"]["param"] == message.removeprefix("invalid ").partition("=")[0]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {}, "messages"),
        (CHAT, {"messages": [{}]}, "messages[0].role"),
        ("/generate", {}, "text"),
    ],
)
def test_what_is_missing_is_reported(server: str, path: str, body: Any, param: str) -> None:
    error = httpx.post(server + path, json=body).json()["error"]
    assert error["param"] == param
    assert " expected " in error["message"]


def test_a_long_value_is_cut(server: str) -> None:
    error = httpx.post(server + CHAT, json={"messages": "x" * 100_000}).json()["error"]
    assert error["message"].startswith("invalid messages='xxx")
    assert error["message"].endswith("...: expected a list of objects")
    assert len(error["message"]) < 200


def test_a_body_without_a_json_content_type_is_reported(server: str) -> None:
    curls_own = "application/x-www-form-urlencoded"
    for headers, shown in ({"Content-Type": curls_own}, f"'{curls_own}'"), ({}, "None"):
        answer = httpx.post(server + CHAT, content=b"{}", headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "Content-Type"
        assert answer.json()["error"]["message"] == (
            f"invalid Content-Type={shown}: expected application/json"
            " (of curl: -H 'Content-Type: application/json')"
        )


@pytest.mark.parametrize("route", [CHAT, "/tokenize", "/v1/prefixes"])
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_an_empty_message_is_refused(server: str, route: str, role: str) -> None:
    for content in ({}, {"content": None}, {"content": []}):
        hello = {"role": "user", "content": "Hello"}
        body = {"messages": [hello, {"role": role, **content}]}
        answer = httpx.post(server + route, json=body)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("messages[1].content", "invalid_value")
        assert ": expected a text, or a list of at least one part" in error["message"]


def test_a_message_may_be_empty_or_call_a_tool_instead(server: str) -> None:
    call = {"function": {"name": "square", "arguments": '{"n": 3}'}}
    for message in (
        {"role": "user", "content": ""},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": [], "tool_calls": [call]},
    ):
        answer = httpx.post(server + "/tokenize", json={"messages": [message]})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("/chat/completions", "; did you mean /v1/chat/completions?"),
        ("/v1/v1/chat/completions", "; did you mean /v1/chat/completions?"),
        ("/v1/chat/completion", "; did you mean /v1/chat/completions?"),
        ("/v1/tokenize", "; did you mean /tokenize?"),
        ("/v1/embeddings", ""),
        ("/" + "x" * 5000, ""),
    ],
)
def test_a_route_that_is_none_gets_a_suggestion(server: str, path: str, suggestion: str) -> None:
    answer = httpx.post(server + path, json={})
    assert answer.status_code == 404
    assert (
        answer.json()["error"]["message"]
        == f"POST {path} is not a route of this server{suggestion}"
    )


def test_a_route_of_another_method_is_not_suggested(server: str) -> None:
    answer = httpx.get(f"{server}/v1/responses/x")
    assert answer.json()["error"]["message"] == "GET /v1/responses/x is not a route of this server"


def test_a_method_that_a_route_has_not_is_reported_with_those_that_it_has(server: str) -> None:
    answer = httpx.get(server + CHAT)
    assert answer.status_code == 405
    assert answer.json()["error"]["message"] == f"GET is not allowed for {CHAT}; expected POST"
    assert answer.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/generate", "POST, PUT"), ("/v1/models", "GET"), ("/v1/prefixes/a", "DELETE")],
)
def test_all_methods_of_a_path_are_reported_whichever_routes_have_them(
    server: str, path: str, allowed: str
) -> None:
    answer = httpx.patch(server + path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.json()["error"]["message"].endswith(f"; expected {allowed}")


@pytest.mark.parametrize("path", ["/generat", "/Generate"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_route_of_two_methods_is_suggested_for_either(
    server: str, path: str, method: str
) -> None:
    answer = httpx.request(method, server + path)
    assert answer.json()["error"]["message"].endswith("; did you mean /generate?")


@pytest.mark.parametrize(
    ("path", "fields", "answer"),
    [
        ("/v1/completions", {"max_tokens": "3"}, "max_tokens='3'"),
        ("/v1/completions", {"max_tokens": 3.0}, "max_tokens=3.0"),
        ("/v1/completions", {"max_tokens": True}, "max_tokens=True"),
        ("/v1/completions", {"temperature": "0"}, "temperature='0'"),
        ("/v1/completions", {"stream": "true"}, "stream='true'"),
        ("/v1/completions", {"logit_bias": {"5": "1"}}, "logit_bias.5='1'"),
        ("/v1/completions", {"json_separators": ",:"}, "json_separators=',:'"),
        ("/v1/responses", {"max_output_tokens": "3", "input": "a"}, "max_output_tokens='3'"),
        ("/v1/prefixes", {"ttl": "5"}, "ttl='5'"),
        ("/generate", {"sampling_params": {"n": "2"}, "text": "a"}, "sampling_params.n='2'"),
    ],
)
def test_no_text_is_taken_for_a_number_nor_a_number_for_a_truth(
    server: str, path: str, fields: dict[str, Any], answer: str
) -> None:
    response = httpx.post(server + path, json={"prompt": "a", **fields})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"invalid {answer}: expected ")


def test_a_whole_number_may_stand_where_any_number_may(server: str) -> None:
    body = {"prompt": "a", "max_tokens": 1, "temperature": 0, "top_p": 1}
    assert httpx.post(f"{server}/v1/completions", json=body).status_code == 200


def test_a_bound_of_a_number_is_reported(server: str) -> None:
    answer = httpx.post(f"{server}/v1/prefixes", json={"prompt": "a", "branches": 0})
    allowed = "an integer or null, >= 1"
    message = f"invalid branches=0: expected {allowed}"
    assert answer.json()["error"]["message"] == message


@pytest.mark.parametrize(
    ("path", "body", "suggestion"),
    [
        (CHAT, {"messages": [{"role": "usr", "content": "a"}]}, "user"),
        ("/v1/responses", {"input": [{"role": "usr", "content": "a"}]}, "user"),
        (
            "/v1/completions",
            {"prompt": "a", "response_format": {"type": "jsn_schema"}},
            "json_schema",
        ),
        ("/generate", {"text": "a", "max_new_tokens": 3}, "sampling_params.max_new_tokens"),
        (
            "/generate",
            {"text": "a", "sampling_params": {"max_tokens": 3}},
            "sampling_params.max_new_tokens",
        ),
    ],
)
def test_a_value_or_a_field_of_another_place_gets_a_suggestion(
    server: str, path: str, body: dict[str, Any], suggestion: str
) -> None:
    answer = httpx.post(server + path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].endswith(f"; did you mean {suggestion}?")


def test_a_misspelled_model_gets_a_suggestion(server: str) -> None:
    answer = httpx.post(f"{server}/v1/completions", json={"prompt": "a", "model": "tinny"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].endswith("; did you mean tiny?")
