"""Many streams at once, and clients that go away: nothing one does harms another."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.sse import Arrival, arrivals
from forkroot.core.api.protocol import Call, CallFailed, Chunk, Completion, Text
from forkroot.core.api.reply import Mailbox
from forkroot.core.local import LocalBackend

from ..conftest import serving

LONG = {"prompt": [1, 2, 3], "max_tokens": 1500, "ignore_eos": True, "stream": True}


@pytest.fixture
def fresh(runtime: Runtime) -> Iterator[str]:
    """A server whose counters are at zero."""
    with serving(runtime) as url:
        yield url


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that must come soon."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def figure(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name))


def request_of(number: int) -> dict[str, Any]:
    """A stream that no other is like."""
    text = f"Question {number}: what is {number} + {number + 1}? Answer:"
    return {
        "prompt": text,
        "max_tokens": 16,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
    }


async def read(client: httpx.AsyncClient, body: dict[str, Any], most: int | None = None) -> str:
    """The text of a stream; of its first `most` events, if it is then dropped."""
    text, count = "", 0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            text += event["choices"][0]["text"]
            count += 1
            if count == most:
                break
    return text


def test_fifty_streams_are_what_each_is_alone_while_a_third_is_dropped(
    fresh: str, backend: LocalBackend
) -> None:
    async def all_of(numbers: range, is_alone: bool) -> list[str]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=fresh, timeout=60, limits=limits) as client:
            if is_alone:
                return [await read(client, request_of(number)) for number in numbers]
            most = [3 if number % 3 == 0 else None for number in numbers]
            bad = [client.post("/v1/completions", content=b"{") for _ in range(5)]
            reads = [read(client, request_of(n), m) for n, m in zip(numbers, most, strict=True)]
            texts, refusals = await asyncio.gather(asyncio.gather(*reads), asyncio.gather(*bad))
            assert {answer.status_code for answer in refusals} == {400}
            return texts

    together = asyncio.run(all_of(range(50), is_alone=False))
    alone = asyncio.run(all_of(range(50), is_alone=True))
    for number, (text, wanted) in enumerate(zip(together, alone, strict=True)):
        if number % 3:
            assert text == wanted
        else:
            assert wanted.startswith(text)
    until(lambda: figure(fresh, "forkroot_calls_open ") == 0)
    assert figure(fresh, "forkroot_requests_open ") == 0
    backend.check()


def test_a_client_that_leaves_a_stream_frees_its_slots(fresh: str, backend: LocalBackend) -> None:
    with httpx.stream("POST", f"{fresh}/v1/completions", json=LONG) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        assert figure(fresh, "forkroot_calls_open ") == 1
    until(lambda: figure(fresh, "forkroot_calls_open ") == 0)
    assert figure(fresh, "forkroot_aborted_calls_total ") == 1
    backend.check()


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
def test_a_client_that_leaves_before_its_answer_ends_its_call(
    fresh: str, backend: LocalBackend, path: str
) -> None:
    sampling = {"max_new_tokens": 1500, "ignore_eos": True}
    body = {**LONG, "stream": False, "input_ids": [1, 2, 3], "sampling_params": sampling}
    connection = http.client.HTTPConnection(fresh.removeprefix("http://"))
    headers = {"Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    until(lambda: figure(fresh, "forkroot_calls_open ") == 1)
    connection.close()
    until(lambda: figure(fresh, "forkroot_calls_open ") == 0)
    assert figure(fresh, "forkroot_aborted_calls_total ") == 1
    backend.check()


def test_all_calls_of_a_request_end_when_its_client_leaves(
    fresh: str, backend: LocalBackend
) -> None:
    body = {**LONG, "prompt": [[1, 2, 3], [1, 2, 4], [5, 6]], "n": 2}
    with httpx.stream("POST", f"{fresh}/v1/completions", json=body) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        assert figure(fresh, "forkroot_calls_open ") == 3
    until(lambda: figure(fresh, "forkroot_calls_open ") == 0)
    backend.check()


def test_a_request_can_be_aborted_by_its_id(fresh: str, backend: LocalBackend) -> None:
    headers = {"X-Request-Id": "long-one"}
    url = f"{fresh}/v1/completions"
    with httpx.stream("POST", url, json=LONG, headers=headers) as response:
        lines = response.iter_lines()
        next(lines)
        answer = httpx.post(f"{fresh}/abort_request", json={"rid": "another"}).json()
        assert answer == {"aborted": 0}
        answer = httpx.post(f"{fresh}/abort_request", json={"rid": "long-one"}).json()
        assert answer == {"aborted": 1}
        rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert rest[-1]["choices"][0]["finish_reason"] == "abort"
    backend.check()


def test_a_stream_is_lines_of_json_and_an_end(fresh: str) -> None:
    with httpx.stream("POST", f"{fresh}/v1/completions", json=request_of(1)) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        body = b"".join(response.iter_raw()).decode()
    events = body.split("\n\n")
    assert all(event.startswith("data: {") for event in events[:-2])
    assert events[-2:] == ["data: [DONE]", ""]


def test_pieces_that_are_ready_together_come_together() -> None:
    replies = [Mailbox(Call((Text("x"),))) for _ in range(2)]

    async def batches() -> list[list[Arrival]]:
        for reply in replies:
            for text in "abc":
                reply.put(Chunk(text))
        found = []
        async for batch in arrivals(replies):
            found.append(batch)
            for reply in replies:
                reply.finish(Completion())
        return found

    first, *others = asyncio.run(batches())
    assert [(it.source, it.chunk.text) for it in first if it.chunk] == [
        (source, text) for source in (0, 1) for text in "abc"
    ]
    assert [it.source for batch in others for it in batch if it.completion] == [0, 1]


def test_an_error_ends_the_other_calls_of_its_request() -> None:
    ended: list[Mailbox] = []
    failing, other = (Mailbox(Call((Text("x"),)), ended.append) for _ in range(2))

    async def read_all() -> None:
        failing.put(Chunk("a"))
        failing.fail(CallFailed("it broke"))
        async for batch in arrivals([failing, other]):
            assert [it.chunk for it in batch] == [Chunk("a")]

    with pytest.raises(CallFailed):
        asyncio.run(read_all())
    assert ended == [other]
