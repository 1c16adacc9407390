"""A stream that breaks off: OpenAI's clients raise, and nothing says that the answer is whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import openai
import pytest

from forkroot.adapters.http.runtime import Runtime
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.protocol import Call, Chunk, EngineDied, Reply
from forkroot.core.reply import Mailbox

from ..serving import serving
from .conftest import Letters

SAID = [{"role": "user", "content": "Hello"}]


class Breaking(ScriptedBackend):
    """Its engine dies once the first chunk of an answer has been read."""

    def submit(self, call: Call) -> Reply:
        reply = _Broken(call, self.cancel)
        reply.put(Chunk("be"))
        return reply


class _Broken(Mailbox):
    async def batches(self, *told: Any) -> AsyncIterator[Sequence[Chunk]]:
        async for chunks in super().batches(*told):
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
        ("chat/completions", {"messages": SAID}),
        ("completions", {"prompt": "Hello"}),
        ("responses", {"input": "Hello"}),
    ],
)
def test_an_error_in_a_stream_is_its_end_and_is_raised_by_openais_client(
    url: str, client: openai.OpenAI, route: str, fields: dict[str, Any]
) -> None:
    body = {"model": "tiny", "stream": True, **fields}
    told = httpx.post(f"{url}/v1/{route}", json=body).text
    assert "[DONE]" not in told
    assert '"code":"engine_dead"' in told.strip().split("\n\n")[-1]
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
    told = httpx.post(f"{url}/v1/responses", json=body).text
    name, data = told.strip().split("\n\n")[-1].split("\n")
    assert name == "event: error"
    numbers = told.split('"sequence_number":')[1:]
    assert data.startswith('data: {"type":"error","code":"engine_dead","message":')
    assert int(numbers[-1].rstrip("}\n")) == len(numbers) - 1
