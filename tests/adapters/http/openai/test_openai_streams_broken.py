"""A stream that breaks off: OpenAI's clients raise, and nothing says that the answer is whole."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import openai
import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, Chunk, EngineDied, Reply
from forkroot.core.api.reply import Mailbox

from ....serving import serving
from ..conftest import Letters

MESSAGES = [{"role": "user", "content": "Hello"}]


class Breaking(ScriptedBackend):
    """Its engine dies once the first chunk of an answer has been read."""

    def submit(self, call: Call) -> Reply:
        reply = _Broken(call, self.cancel)
        reply.put(Chunk("be"))
        return reply


class _Broken(Mailbox):
    async def batches(self, *response: Any) -> AsyncIterator[Sequence[Chunk]]:
        async for chunks in super().batches(*response):
            yield chunks
            self.fail(EngineDied("gone"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Runtime(Breaking(), Letters(), ("tiny",))) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("chat/completions", {"messages": MESSAGES}),
        ("completions", {"prompt": "Hello"}),
        ("responses", {"input": "Hello"}),
    ],
)
def test_an_error_in_a_stream_is_its_end_and_is_raised_by_openais_client(
    url: str, client: openai.OpenAI, route: str, fields: dict[str, Any]
) -> None:
    body = {"model": "tiny", "stream": True, **fields}
    response = httpx.post(f"{url}/v1/{route}", json=body).text
    assert "[DONE]" not in response
    assert '"code":"engine_dead"' in response.strip().split("\n\n")[-1]
    create = {
        "chat/completions": client.chat.completions.create,
        "completions": client.completions.create,
        "responses": client.responses.create,
    }[route]
    seen = []
    with pytest.raises(openai.APIError, match="the engine has died") as caught:
        seen.extend(event for event in create(**body))
    assert caught.value.code == "engine_dead"


def test_the_error_of_a_response_is_an_event_with_a_number(url: str) -> None:
    body = {"model": "tiny", "stream": True, "input": "Hello"}
    response = httpx.post(f"{url}/v1/responses", json=body).text
    name, data = response.strip().split("\n\n")[-1].split("\n")
    assert name == "event: error"
    numbers = response.split('"sequence_number":')[1:]
    assert data.startswith('data: {"type":"error","code":"engine_dead","message":')
    assert int(numbers[-1].rstrip("}\n")) == len(numbers) - 1


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The line of the one request."""
    for _ in range(1000):
        if lines := [it.getMessage() for it in caplog.records if it.name == "forkroot.http"]:
            line: dict[str, Any] = json.loads(lines[-1])
            return line
        time.sleep(0.01)
    raise AssertionError("nothing was logged")


def test_the_log_has_how_a_stream_ended(url: str, caplog: pytest.LogCaptureFixture) -> None:
    body = {"model": "tiny", "stream": True, "prompt": "Hello"}
    with caplog.at_level(logging.INFO, "forkroot.http"):
        httpx.post(f"{url}/v1/completions", json=body)
        line = logged(caplog)
    assert (line["status"], line["error"]) == (200, "engine_dead")


def test_the_log_has_a_client_that_left_and_no_error_where_all_is_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = ScriptedBackend("Hello", is_held=True)
    with (
        serving(Runtime(backend, Letters(), ("tiny",))) as url,
        caplog.at_level(logging.INFO, "forkroot.http"),
    ):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/completions", json={"prompt": "Hello"}, timeout=0.3)
        assert (logged(caplog)["status"], logged(caplog)["error"]) == (499, "client_left")
        caplog.clear()
        httpx.get(f"{url}/v1/models")
        assert "error" not in logged(caplog)
