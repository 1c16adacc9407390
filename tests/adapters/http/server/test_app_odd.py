"""Values that make no sense, in every field: refused in one shape, and nothing breaks."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.openai.responses_wire import ResponsesRequest
from forkroot.adapters.http.wire.wire import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from forkroot.core.local import LocalBackend

MESSAGES = [{"role": "user", "content": "hi"}]
ROUTES: dict[str, tuple[Any, dict[str, Any]]] = {
    "/v1/chat/completions": (ChatRequest, {"messages": MESSAGES, "max_tokens": 3}),
    "/v1/completions": (CompletionRequest, {"prompt": "hi", "max_tokens": 3}),
    "/v1/responses": (ResponsesRequest, {"input": "hi", "max_output_tokens": 3}),
    "/tokenize": (TokenizeRequest, {"prompt": "hi"}),
    "/detokenize": (DetokenizeRequest, {"tokens": [5, 6]}),
}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"anyOf": [schema]}
    return schema


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63, -(2**70), 1e308, float("inf"), float("nan"), 0.5),
    *("", "a", "\ud800", "\x00", "\ufdd00\ufdd1", "<|im_end|>", "x" * 3000, "(a|b)*", "[", "$("),
    *([], [1], [""], [[1, 2]], [None], [4095], [4096], [0] * 2048, ["\ud800"]),
    *({}, {"a": 1}, {"5": 3}, {"99999999": 3}, {"-1": 2}, {"root": "x", "branches": -1}),
    *({"type": "object"}, {"type": "json_schema", "json_schema": {"schema": {}}}),
    *({"format": {"type": "json_schema"}}, {"type": "function", "function": {"name": "f"}}),
    *([{"role": "user"}], [{"role": "assistant", "tool_calls": []}], MESSAGES),
    *([{"type": "function", "function": {"name": "f"}}], [{"type": "function", "name": "f"}]),
    *("required", 'start: "a"', "start: a a", 'root ::= "a"'),
    *(nested(30), nested(400)),
)


@pytest.mark.parametrize("path", ROUTES)
def test_odd_values_are_taken_or_refused_in_one_shape(
    server: str, backend: LocalBackend, path: str
) -> None:
    model, plain = ROUTES[path]
    with httpx.Client(base_url=server, timeout=60) as client:
        for name in model.model_fields:
            for value in random.Random(f"{path} {name}").sample(ODD, 6):
                content = json.dumps({**plain, name: value})
                headers = {"Content-Type": "application/json"}
                response = client.post(path, content=content, headers=headers)
                assert response.status_code in (200, 400, 404, 408), (
                    content[:300],
                    response.text[:300],
                )
                if response.status_code != 200:
                    error = response.json()["error"]
                    assert set(error) == {"message", "type", "param", "code"}
                    assert error["message"], content[:300]
    backend.check()


def test_what_is_repeated_to_a_client_need_not_be_text(server: str) -> None:
    body = json.dumps({"input": "hi", "max_output_tokens": 1, "metadata": {"a": "\ud800"}})
    headers = {"Content-Type": "application/json"}
    response = httpx.post(f"{server}/v1/responses", content=body, headers=headers)
    assert response.json()["metadata"] == {"a": "\ud800"}
