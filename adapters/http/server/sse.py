"""Streamed answers, as server-sent events.

What is ready at one time is sent in one piece, the end of the answer too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from ....core.api.protocol import Chunk, Completion, ForkrootError, Reply
from ....core.api.reply import batches as batches_of
from ..wire.names import new_name
from .concurrent_calls import cancel_all
from .errors import as_request_names, failed_body

Event: TypeAlias = Mapping[str, Any]
Line: TypeAlias = str  # an event as it is sent
T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
WRITER = "forkroot.writer"  # the extension of ASGI that writes a piece of a body at once
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Arrival(NamedTuple):
    """Something that came in for one of several replies: a chunk, or its end."""

    source: int
    chunk: Chunk | None = None
    completion: Completion | None = None
    error: Exception | None = None


class Last(list[T]):
    """The last batch of a stream."""


def arrivals(replies: Sequence[Reply]) -> AsyncIterator[list[Arrival]]:
    """What arrives for these replies, in one list what arrives at one time; `Last` when all have
    ended. Raises the first error. The other calls then end, as when the client stops reading."""
    return _of_one(replies[0]) if len(replies) == 1 else _of_many(replies)


async def _of_one(reply: Reply) -> AsyncIterator[list[Arrival]]:
    ready: list[Arrival] = []
    try:
        async for chunks in batches_of(reply):
            ready += [Arrival(0, chunk) for chunk in chunks]
            if not reply.done():  # else the rest is there, and may go with it
                yield ready
                ready = []
        ready.append(Arrival(0, completion=await reply))
        yield Last(ready)
    except Exception:
        if ready:
            yield ready
        raise
    finally:
        reply.cancel()


async def _of_many(replies: Sequence[Reply]) -> AsyncIterator[list[Arrival]]:
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
                yield well if num_left or errors else Last(well)
            if errors:
                raise errors[0]
    finally:
        cancel_all(replies)
        for pump in pumps:
            pump.cancel()


async def _pump(source: int, reply: Reply, ready: list[Arrival], woken: asyncio.Event) -> None:
    try:
        async for chunks in batches_of(reply):
            ready += [Arrival(source, chunk) for chunk in chunks]
            woken.set()
        ready.append(Arrival(source, completion=await reply))
    except Exception as error:
        ready.append(Arrival(source, error=error))
    woken.set()


async def events_of(
    batches: AsyncIterator[list[Arrival]],
    shape: Callable[[Arrival], Iterable[T]],
    at_end: Callable[[], Sequence[T]] = list,
) -> AsyncIterator[list[T]]:
    """The events of each batch, as `shape` makes them; with those of the last one `at_end`."""
    async for batch in batches:
        events = [event for it in batch for event in shape(it)]
        yield Last([*events, *at_end()]) if isinstance(batch, Last) else events


class Frame:
    """A line of which one text changes, encoded once. `shape` makes the event around a text."""

    def __init__(self, shape: Callable[[str], Event]) -> None:
        mark = new_name()  # occurs nowhere else
        self._before, _, self._after = _line(shape(mark)).partition(mark)

    def line(self, text: str) -> Line:
        """The event with this text."""
        return f"{self._before}{_encode(text)[1:-1]}{self._after}"


class Final(bytes):
    """The last piece of a body."""


class EventStream(Response):
    """A body in pieces, each sent when it is there; `Final` saves a message for the end. It waits
    while its client does not read. Disconnected clients are found by the admission middleware."""

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self.status_code = 200
        self.background = None
        self._pieces = pieces
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        is_open = True
        async for piece in self._pieces:
            is_open = not isinstance(piece, Final)
            await send({"type": "http.response.body", "body": piece, "more_body": is_open})
        if is_open:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def stream(
    batches: AsyncIterator[Sequence[Event | Line]],
    names: Mapping[str, str] | None = None,
    end: bytes = DONE,
) -> EventStream:
    """The answer to a request: each event as a line, then `end`. An error before the first event is
    raised; a later one becomes the last event, without the `end` that marks a whole answer. names:
    fields of the protocol as the request calls them."""
    first: Sequence[Event | Line] = ()
    while not first:
        first = await anext(batches)
    return EventStream(_pieces(first, batches, names or {}, end))


async def _pieces(
    first: Sequence[Event | Line],
    batches: AsyncIterator[Sequence[Event | Line]],
    names: Mapping[str, str],
    end: bytes,
) -> AsyncIterator[bytes]:
    has_ended = isinstance(first, Last)
    yield Final(encode(first) + end) if has_ended else encode(first)
    try:
        async for batch in batches:
            if isinstance(batch, Last):
                has_ended = True
                yield Final(encode(batch) + end)
            elif batch:
                yield encode(batch)
    except ForkrootError as error:
        renamed = as_request_names(error, names)
        yield Final(encode([failed_body(renamed)]))
        return
    if not has_ended:
        yield Final(end)


def encode(events: Iterable[Event | Line]) -> bytes:
    """Events in one piece. One with a "type" is named by it."""
    return "".join([it if isinstance(it, str) else _line(it) for it in events]).encode()


def _line(event: Event) -> Line:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {_encode(event)}\n\n"
