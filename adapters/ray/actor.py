"""An engine in an actor of Ray: a backend whose replies are fetched in batches.

What crosses the wire are the bytes of `core.api.codec`; the actor restores no other values. It
knows nothing of Ray but that its methods are coroutines of one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...core.api.codec import pack, unpack
from ...core.api.protocol import (
    Backend,
    Call,
    CallFailed,
    Chunk,
    ForkrootError,
    Reply,
    UnsupportedCall,
)

QUESTIONS = (
    *("info", "snapshot", "clear_cache", "reset_counters", "check"),
    *("evictions", "prefixes", "program_report"),
)
SECONDS_OF_PULL = 5.0  # after which an empty batch is a sign of life


class EngineActor:
    """Hosts the backend that `make` gives. Its driver sends calls in batches and pulls what has
    come of them, all calls together, so that a round trip of Ray is paid once for many chunks."""

    def __init__(self, make: Callable[[], Backend]) -> None:
        self._backend: Backend | None = None
        self._error: ForkrootError | None = None
        try:
            self._backend = make()
        except ForkrootError as error:
            self._error = error
        self._replies: dict[int, Reply] = {}
        self._events: Events | None = None  # made in the event loop
        self._submitter = ThreadPoolExecutor(1, "forkroot-submit")  # keeps the order of calls
        self._asker = ThreadPoolExecutor(2, "forkroot-ask")

    async def start(self) -> bytes:
        """Once the backend runs: which questions it answers, or the error for which it does not."""
        if self._error is not None:
            return pack(self._error)
        return pack([name for name in QUESTIONS if hasattr(self._backend, name)])

    async def take(self, data: bytes) -> None:
        """Start calls, and cancel others: a batch of messages in their order."""
        self._submitter.submit(self._take, data, self._outbox())

    async def pull(self) -> bytes:
        """What has come since the last pull: (number, kind, value) of chunks and endings. Waits for
        the first of it; after some seconds there may be none."""
        return pack(await self._outbox().next(SECONDS_OF_PULL))

    async def ask(self, kind: str, data: bytes) -> bytes:
        """What a method of the backend gives, or its error as a value."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._asker, self._answer, kind, data)

    async def close(self) -> None:
        """End the backend and its calls."""
        if self._backend is not None:
            await asyncio.get_running_loop().run_in_executor(self._asker, self._backend.close)

    def _outbox(self) -> Events:
        if self._events is None:
            self._events = Events(asyncio.get_running_loop())
        return self._events

    def _answer(self, kind: str, data: bytes) -> bytes:
        try:
            method = getattr(self._backend, kind, None) if kind in QUESTIONS else None
            if method is None:
                raise UnsupportedCall("question", kind, "what the backend can be asked")
            return pack(method(*unpack(data)))
        except Exception as error:
            return pack(sendable(error))

    def _take(self, data: bytes, events: Events) -> None:
        for kind, number, *details in unpack(data):
            if kind == "submit":
                self._submit(number, unpack(*details), events)
            elif (reply := self._replies.get(number)) is not None:
                reply.cancel()

    def _submit(self, number: int, call: Call, events: Events) -> None:
        assert self._backend is not None
        try:
            reply = self._replies[number] = self._backend.submit(call)
        except Exception as error:  # the backend does not keep to the protocol
            events.add(number, "failed", sendable(error))
            return
        if call.stream:
            follow(reply, lambda chunks: events.add(number, "chunks", chunks))
        reply.when_done(lambda ended: self._end(number, ended, events))

    def _end(self, number: int, reply: Reply, events: Events) -> None:
        self._replies.pop(number, None)
        error = reply.error()
        if error is not None:
            events.add(number, "failed", sendable(error))
        else:
            events.add(number, "done", reply.result(0))


class Events:
    """What is to be sent, in its order: added by any thread, fetched by one task of `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._events: list[tuple[int, str, Any]] = []
        self._has_some = asyncio.Event()
        self._is_due = False

    def add(self, number: int, kind: str, value: Any) -> None:
        """One more. Wakes the loop, once for all that come before it looks."""
        self._events.append((number, kind, value))
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon_threadsafe(self._has_some.set)

    async def next(self, seconds: float) -> list[tuple[int, str, Any]]:
        """All of them, as soon as there is one; none after so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_some.wait(), seconds)
        self._has_some.clear()
        self._is_due = False  # what is added from here on wakes the loop again
        events, self._events = self._events, []
        return events


def follow(reply: Reply, take: Callable[[Sequence[Chunk]], object]) -> None:
    """As `Mailbox.follow`, of any reply: those without it are read by a thread."""
    own: Callable[..., None] | None = getattr(reply, "follow", None)
    if own is not None:
        own(take)
        return

    def read() -> None:
        with contextlib.suppress(Exception):  # the ending has the error
            for chunk in reply:
                take((chunk,))

    reader = threading.Thread(target=read, name="forkroot-stream", daemon=True)
    reader.start()
    reply.when_done(lambda _: reader.join())


def sendable(error: BaseException) -> ForkrootError:
    """The error itself if it is one of the protocol, else a CallFailed that says what it was."""
    if isinstance(error, ForkrootError):
        return error
    return CallFailed(f"{type(error).__name__}: {error!s:.200}")
