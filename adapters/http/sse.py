"""Answers that come in pieces, as server-sent events.

What is ready at one time is sent in one piece.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from fastapi.responses import StreamingResponse

from ...core.protocol import Chunk, Completion, ForkrootError, Reply
from .errors import as_request_names, error_body, fault_of, message_of

Event: TypeAlias = Mapping[str, Any]
DONE = b"data: [DONE]\n\n"


class Arrival(NamedTuple):
    """Something that came in for one of several replies: a chunk, or its end."""

    source: int
    chunk: Chunk | None = None
    completion: Completion | None = None
    error: Exception | None = None


async def arrivals(replies: Sequence[Reply]) -> AsyncIterator[list[Arrival]]:
    """What comes in for these replies, together what is there at one time. Raises the first error;
    the other calls are then ended, as they are when nobody reads on."""
    ready: list[Arrival] = []
    woken = asyncio.Event()
    pumps = [
        asyncio.create_task(_pump(source, reply, ready, woken))
        for source, reply in enumerate(replies)
    ]
    num_left = len(pumps)
    try:
        while num_left:
            await woken.wait()
            woken.clear()
            batch = ready[:]
            ready.clear()
            errors = [it.error for it in batch if it.error is not None]
            num_left -= sum(it.chunk is None for it in batch)
            if well := [it for it in batch if it.error is None]:
                yield well
            if errors:
                raise errors[0]
    finally:
        for reply in replies:
            reply.cancel()
        for pump in pumps:
            pump.cancel()


async def _pump(source: int, reply: Reply, ready: list[Arrival], woken: asyncio.Event) -> None:
    try:
        async for chunk in reply:
            ready.append(Arrival(source, chunk))
            woken.set()
        ready.append(Arrival(source, completion=await reply))
    except Exception as error:
        ready.append(Arrival(source, error=error))
    woken.set()


async def stream(
    batches: AsyncIterator[Sequence[Event]],
    names: Mapping[str, str] | None = None,
    end: bytes = DONE,
) -> StreamingResponse:
    """The answer to a request: each event as a line, then `end`. An error before the first event is
    raised; a later one becomes an event. names: fields of the door as the request calls them."""
    first: Sequence[Event] = ()
    while not first:
        first = await anext(batches)
    body = _lines(first, batches, names or {}, end)
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(body, media_type="text/event-stream", headers=headers)


async def _lines(
    first: Sequence[Event],
    batches: AsyncIterator[Sequence[Event]],
    names: Mapping[str, str],
    end: bytes,
) -> AsyncIterator[bytes]:
    yield encode(first)
    try:
        async for batch in batches:
            if batch:
                yield encode(batch)
    except ForkrootError as error:
        told = as_request_names(error, names)
        yield encode([error_body(message_of(told), fault_of(told))])
    yield end


def encode(events: Iterable[Event]) -> bytes:
    """Events in one piece. One with a "type" is named by it."""
    return "".join(map(_line, events)).encode()


def _line(event: Event) -> str:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event, separators=(',', ':'))}\n\n"
