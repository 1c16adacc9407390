"""Large and malicious bodies cost little, and nobody waits while they are read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from forkroot.adapters.http.app import build_app
from forkroot.adapters.http.forkroot.operation import AbortRequest
from forkroot.adapters.http.forkroot.prefixes import PrefixBody
from forkroot.adapters.http.openai.responses_wire import ResponsesRequest
from forkroot.adapters.http.requests import unknown
from forkroot.adapters.http.requests.bodies import BodyRoute
from forkroot.adapters.http.server.large_answers import Answer
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.sglang.body import ConcatenateBody, GenerateBody
from forkroot.adapters.http.wire.wire import (
    Body,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call

from ..conftest import Letters

NUM = 3000
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


async def post(app: Any, path: str, body: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post(path, json=body)


def app_of(kind: type[Body], seen: list[Any]) -> FastAPI:
    """An app with one route for such bodies; the number of errors of each goes to `seen`."""
    app, router = FastAPI(), APIRouter(route_class=BodyRoute)

    async def take(given: Any) -> Answer:
        return Answer({})

    take.__annotations__ = {"given": kind, "return": Answer}
    router.add_api_route("/", take, methods=["POST"])

    @app.exception_handler(RequestValidationError)
    async def refused(request: Request, error: RequestValidationError) -> JSONResponse:
        seen.append(len(error.errors()))
        return JSONResponse({}, 400)

    app.include_router(router)
    return app


WRONG: list[tuple[type[Body], Any]] = [
    (CompletionRequest, {"prompt": [1, *["x", None] * NUM]}),
    (CompletionRequest, {"prompt": [[1], [None] * NUM, *[[{}]] * NUM]}),
    (CompletionRequest, {"prompt": "x", "stop": [1] * NUM, "stop_token_ids": ["1"] * NUM}),
    (CompletionRequest, {"prompt": "x", "logit_bias": {str(i): "x" for i in range(NUM)}}),
    (CompletionRequest, {"prompt": "x", "choices": [1] * NUM}),
    (CompletionRequest, {"prompt": "x", "guided_choice": [1] * NUM}),
    (CompletionRequest, {"prompt": "x", "structured_outputs": {"choice": [1] * NUM}}),
    (ChatRequest, {"messages": [{"role": 1}] * NUM}),
    (ChatRequest, {"messages": [{"role": "user", "content": [1] * NUM}] * 3}),
    (ChatRequest, {**CHAT, "tools": [{"type": 1}] * NUM}),
    (ChatRequest, {"messages": [{"role": "assistant", "tool_calls": [1] * NUM}]}),
    (ResponsesRequest, {"input": [1] * NUM}),
    (ResponsesRequest, {"input": "x", "tools": [1] * NUM, "include": [1] * NUM}),
    (GenerateBody, {"input_ids": [1, *["x"] * NUM]}),
    (GenerateBody, {"text": [1] * NUM, "rid": [1] * NUM, "return_logprob": ["x"] * NUM}),
    (GenerateBody, {"text": "x", "logprob_start_len": ["x"] * NUM, "top_logprobs_num": [""] * NUM}),
    (GenerateBody, {"text": "x", "sampling_params": [1] * NUM}),
    (GenerateBody, {"text": "x", "sampling_params": {"logit_bias": dict.fromkeys("ab" * 3, "x")}}),
    (ConcatenateBody, {"src_rids": [1] * NUM, "dst_rid": "x"}),
    (TokenizeRequest, {"messages": [{"role": 1}] * NUM, "tools": [1] * NUM}),
    (DetokenizeRequest, {"tokens": ["1"] * NUM}),
    (PrefixBody, {"prompt": [1, *["x"] * NUM], "messages": [1] * NUM}),
    (AbortRequest, {"rid": [1] * NUM}),
]


@pytest.mark.parametrize(("kind", "body"), WRONG)
def test_of_many_errors_in_a_list_one_is_collected(kind: type[Body], body: Any) -> None:
    seen: list[int] = []
    response = asyncio.run(post(app_of(kind, seen), "/", body))
    assert response.status_code == 400
    assert 1 <= seen[0] <= 12


def test_a_wrong_entry_among_many_is_named(server: str) -> None:
    body = {"prompt": "x", "logit_bias": {**{str(i): 1 for i in range(2000)}, "7": "1"}}
    response = httpx.post(f"{server}/v1/completions", json=body)
    assert response.json()["error"]["param"] == "logit_bias.7"


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were compared with known ones, once for each."""
    names: list[str] = []
    compare = unknown.is_misspelled

    def counting(name: str, known: str) -> bool:
        names.append(name)
        return compare(name, known)

    monkeypatch.setattr(unknown, "is_misspelled", counting)
    return names


FIELDS = {f"field_{number}": 1 for number in range(NUM)}
FEW = dict(list(FIELDS.items())[:20])
BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {"prompt": "Hi", **FIELDS}, "3001 fields"),
    ("/v1/chat/completions", {**CHAT, **FIELDS}, "3001 fields"),
    ("/v1/responses", {"input": "Hi", **FIELDS}, "3001 fields"),
    ("/generate", {"text": "Hi", **FIELDS}, "3001 fields"),
    ("/generate", {"text": "Hi", "sampling_params": FIELDS}, "unknown fields"),
    ("/tokenize", {"prompt": "Hi", **FIELDS}, "3001 fields"),
    ("/v1/prefixes", {"prompt": "Hi", **FIELDS}, "3001 fields"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi", **FIELDS}]},
        "unknown",
    ),
    ("/v1/chat/completions", {**CHAT, "stream_options": FIELDS}, "unknown fields"),
]


@pytest.mark.parametrize(("path", "body", "shown"), BODIES)
def test_few_of_many_unknown_fields_are_compared_with_known_ones(
    server: str, compared: list[str], path: str, body: dict[str, Any], shown: str
) -> None:
    response = httpx.post(f"{server}{path}", json=body)
    assert response.status_code == 400
    assert shown in response.json()["error"]["message"]
    assert len(set(compared)) <= unknown.MOST_COMPARED


def test_the_same_unknown_field_of_many_messages_is_compared_once(
    server: str, compared: list[str]
) -> None:
    message = {"role": "user", "content": "Hi", "timestamp": 1}
    body = {"messages": [message] * 300, "max_tokens": 1}
    assert httpx.post(f"{server}/v1/chat/completions", json=body).status_code in (200, 400)
    assert 1 <= compared.count("timestamp") <= 6


LARGE: list[tuple[str, Any, str, str]] = [
    ("/v1/completions", {"prompt": [[1]] * 600_000}, "body", "values"),
    ("/generate", {"input_ids": [1] * 1_100_000}, "body", "values"),
    ("/v1/forkroot/calls", {"type": "Call", "prompt": [1] * 1_100_000}, "body", "values"),
    ("/v1/chat/completions", {"messages": CHAT["messages"] * 9000}, "messages", "9000 objects"),
    ("/v1/completions", {"prompt": "x" * 20_000, "a": json.loads("[" * 300 + "]" * 300)}, "body",
     "301 levels"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "param", "shown"), LARGE)
def test_what_exceeds_the_limits_of_bodies_is_refused(
    server: str, path: str, body: Any, param: str, shown: str
) -> None:
    error = httpx.post(f"{server}{path}", json=body, timeout=30).json()["error"]
    assert (error["param"], error["code"]) == (param, "invalid_value")
    assert shown in error["message"]


def test_a_large_body_is_read_in_another_thread() -> None:
    threads: list[threading.Thread] = []

    class Noting(Body):
        text: str

        def model_post_init(self, context: Any) -> None:
            threads.append(threading.current_thread())

    app = app_of(Noting, [])
    for length in (10, 50_000):
        assert asyncio.run(post(app, "/", {"text": "x" * length})).status_code == 200
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, False]


PROMPT = "Once upon a time, " * 3000
TOO_LONG: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {"prompt": PROMPT}, "prompt"),
    ("/v1/completions", {"prompt": PROMPT, "echo": True, "logprobs": 1}, "prompt"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}, "messages"),
    ("/v1/responses", {"input": PROMPT}, "input"),
    ("/generate", {"text": PROMPT}, "text"),
    ("/v1/prefixes", {"prompt": PROMPT}, "prompt"),
]


@pytest.mark.parametrize(("path", "body", "param"), TOO_LONG)
def test_a_prompt_that_cannot_fit_is_refused_by_its_characters(
    server: str, path: str, body: dict[str, Any], param: str
) -> None:
    response = httpx.post(f"{server}{path}", json=body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == (param, "context_length_exceeded")
    assert "characters" in error["message"]


def test_tokens_of_a_text_longer_than_the_context_can_be_counted(server: str) -> None:
    found = httpx.post(f"{server}/tokenize", json={"prompt": PROMPT}).json()
    assert found["count"] == len(found["tokens"]) > found["max_model_len"]


class Blocked(ScriptedBackend):
    """A backend whose `submit` waits."""

    def __init__(self) -> None:
        super().__init__([])
        self.is_free = threading.Event()

    def submit(self, call: Call) -> Any:
        self.is_free.wait(30)
        return super().submit(call)


def test_health_waits_for_no_request_that_is_being_prepared() -> None:
    backend = Blocked()
    app = build_app(Runtime(backend, Letters(), ("scripted",)))
    body = {"prompt": "Hi", "regex": "a"}

    async def statuses() -> Sequence[int]:
        blocked = [asyncio.ensure_future(post(app, "/v1/completions", body)) for _ in range(64)]
        await asyncio.sleep(0.1)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            health = await client.get("/health")
        was_free = backend.is_free.is_set()
        backend.is_free.set()
        await asyncio.gather(*blocked, return_exceptions=True)
        return health.status_code, was_free

    assert asyncio.run(statuses()) == (200, False)
