"""Streamed answers piece by piece: what is sent together, and what waits for a slow client."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.app import build_app
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.sse import Event, Frame, Last, arrivals, stream
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, CallFailed, Chunk, Completion, Reply, Text
from forkroot.core.api.reply import Mailbox

from ..conftest import Letters, serving

CALL = Call((Text("x"),))
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}


class Client:
    """What a server sends to; it reads while `is_reading` is set."""

    def __init__(self) -> None:
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        self.parts: list[bytes] = []
        self.is_over = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            assert not self.is_over
            self.parts.append(message["body"])
            self.is_over = not message["more_body"]
            await self.is_reading.wait()

    async def receive(self) -> Any:
        await asyncio.get_running_loop().create_future()

    async def read(self, events: AsyncIterator[Sequence[Event]]) -> None:
        response = await stream(events)
        await response({"type": "http"}, self.receive, self.send)


async def texts(replies: Sequence[Reply]) -> AsyncIterator[list[Event]]:
    """Arrivals as the simplest events."""
    async for batch in arrivals(replies):
        events: list[Event] = [{"text": it.chunk.text if it.chunk else None} for it in batch]
        yield Last(events) if isinstance(batch, Last) else events


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_is_made_for_a_client_that_does_not_read(count: int) -> None:
    replies = [Mailbox(CALL) for _ in range(count)]

    async def main() -> list[bytes]:
        client = Client()
        task = asyncio.create_task(client.read(texts(replies)))
        client.is_reading.clear()
        for number in range(100):
            for reply in replies:
                reply.put(Chunk(str(number)))
            await turns()
        assert len(client.parts) == 1
        client.is_reading.set()
        await turns()
        assert len(client.parts) == 2
        for reply in replies:
            reply.finish(Completion())
        await task
        assert client.is_over
        return client.parts

    parts = asyncio.run(main())
    lines = b"".join(parts).split(b"\n\n")
    result = [json.loads(line[6:])["text"] for line in lines[:-2]]
    assert sorted(it for it in result if it) == sorted([*map(str, range(100))] * count)
    assert lines[-2:] == [b"data: [DONE]", b""]


@pytest.mark.parametrize("count", [1, 2])
def test_an_answer_that_is_there_is_sent_whole_with_its_end(count: int) -> None:
    replies = [Mailbox(CALL) for _ in range(count)]
    for reply in replies:
        reply.put(Chunk("a"))
        reply.put(Chunk("b"))
        reply.finish(Completion())

    async def main() -> list[bytes]:
        client = Client()
        await client.read(texts(replies))
        assert client.is_over
        return client.parts

    result = [f'data: {{"text":{it}}}\n\n'.encode() for it in ('"a"', '"b"', "null")]
    assert asyncio.run(main()) == [b"".join(result * count) + b"data: [DONE]\n\n"]


def test_an_error_after_the_first_piece_is_the_end_of_the_stream() -> None:
    reply = Mailbox(CALL)

    async def main() -> list[bytes]:
        client = Client()
        reply.put(Chunk("a"))
        task = asyncio.create_task(client.read(texts([reply])))
        await turns()
        reply.put(Chunk("b"))
        reply.fail(CallFailed("a secret of ours"))
        await task
        assert client.is_over
        return client.parts

    first, second, last = asyncio.run(main())
    assert (first, second) == (b'data: {"text":"a"}\n\n', b'data: {"text":"b"}\n\n')
    error, end = last.split(b"\n\n", 1)
    assert json.loads(error[6:])["error"]["code"] == "internal_error"
    assert end == b""  # nothing says that the answer is whole


@pytest.mark.parametrize("text", ["", "a", 'quote " \\ \n', "\x00", "\ud800", "ß 😀", "</script>"])
def test_a_frame_equals_the_whole_event(text: str) -> None:
    def shape(text: str) -> Event:
        return {"id": "x", "choices": [{"delta": {"content": text}, "logprobs": None}], "n": 1}

    line = Frame(shape).line(text)
    assert line.startswith("data: ") and line.endswith("\n\n")
    assert json.loads(line[6:]) == shape(text)


@pytest.mark.parametrize("more", [{}, {"stream_options": {"include_usage": True}}, {"n": 2}])
@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_all_events_of_a_stream_have_one_shape(path: str, more: dict[str, Any]) -> None:
    backend = ScriptedBackend('one "two"\nthree and so on', chunk_len=3)
    body = {**CHAT, "prompt": "Hello", **more}
    with serving(Runtime(backend, Letters(), ("scripted",))) as url:
        lines = httpx.post(f"{url}/v1/{path}", json=body).text.split("\n\n")
    events = [json.loads(line[6:]) for line in lines[:-2]]
    tail = events.pop() if "stream_options" in more else None
    assert tail is None or (tail["choices"] == [] and "total_tokens" in tail["usage"])
    assert len({tuple(event) for event in events}) == 1
    assert len({tuple(event["choices"][0]) for event in events}) == 1
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    for index in range(more.get("n", 1)):
        choices = [it["choices"][0] for it in events if it["choices"][0]["index"] == index]
        written = [it.get("text") or it.get("delta", {}).get("content") or "" for it in choices]
        assert "".join(written) == 'one "two"\nthree and so on'
        assert [it["finish_reason"] for it in choices if it["finish_reason"]] == ["stop"]


class Afar(ScriptedBackend):
    """A backend in another process, as far as can be seen from here."""

    pid = 1

    def __init__(self) -> None:
        super().__init__("x")
        self.threads: list[str] = []

    def submit(self, call: Call) -> Reply:
        self.threads.append(threading.current_thread().name)
        return super().submit(call)


@pytest.mark.parametrize(
    ("more", "is_small"),
    [
        ({}, True),
        ({"messages": [{"role": "user", "content": "x" * 100_000}]}, False),
        ({"regex": "x+"}, False),
    ],
)
def test_only_a_small_call_is_passed_on_at_once(more: dict[str, Any], is_small: bool) -> None:
    backend = Afar()

    async def main() -> str:
        app = build_app(Runtime(backend, Letters(), ("scripted",)))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            result = await client.post("/v1/chat/completions", json={**CHAT, **more})
            assert result.status_code == 200
        return threading.current_thread().name

    loop_thread = asyncio.run(main())
    assert [name == loop_thread for name in backend.threads] == [is_small]
