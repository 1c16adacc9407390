"""Where all calls of all requests pass: each gets its client's namespace, and is known to its
request, which can end them all.

`Desk` is a backend around the served one. Routes submit to it and need not know who asks: the
request is found in the context they run in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from ....core.api.protocol import (
    Backend,
    BackendClosed,
    BackendInfo,
    Call,
    Chunk,
    Completion,
    Reply,
    UnsupportedCall,
    Usage,
)
from ....core.api.reply import Bell, batches
from .errors import fault_of
from .keys import Client, within
from .metrics import Metrics


@dataclass(slots=True, eq=False)
class Ticket:
    """One request at work. Mutable: replies are added by routes, wherever they run.

    refusal: the code of the error that it was answered with. is_gone: nobody waits for its answer
    any longer. is_cut_off: the server's shutdown has ended its calls.
    """

    id: str
    client: Client = field(default_factory=Client)
    route: str = ""
    replies: list[Reply] = field(default_factory=list)
    refusal: str | None = None
    is_gone: bool = False
    is_cut_off: bool = False

    def add(self, reply: Reply) -> None:
        """A call of this request; it is ended at once if the client has gone meanwhile."""
        self.replies.append(reply)
        if self.is_gone:
            reply.cancel()

    def cancel(self) -> int:
        """End all calls of this request, those to come, too; returns how many were open."""
        self.is_gone = True
        left = [reply for reply in list(self.replies) if not reply.done()]
        for reply in left:
            reply.cancel()
        return len(left)

    @property
    def usage(self) -> Usage:
        """Tokens of its calls that have ended well."""
        ended = [it for it in list(self.replies) if it.done() and it.error() is None]
        return sum((it.result(0).usage for it in ended), Usage())

    @property
    def reason(self) -> str | None:
        """Why it was refused or failed; None if it was not."""
        errors = [error for it in list(self.replies) if (error := it.error()) is not None]
        if not errors and self.is_cut_off and any(map(_is_aborted, list(self.replies))):
            errors.append(_shut_down())
        return fault_of(errors[0]).code if errors else self.refusal

    @property
    def is_of_openai(self) -> bool:
        """Whether its route is one of OpenAI's API, which knows no finish reason "abort"."""
        return self.route.startswith("/v1/") and not self.route.startswith("/v1/forkroot/")


@runtime_checkable
class Flushable(Protocol):
    """A backend whose cache can be emptied."""

    def clear_cache(self) -> int:
        """Forget what no open call uses; returns how many tokens."""


@runtime_checkable
class Lasting(Protocol):
    """A backend that puts another engine in the place of one that has died. is_over: it has given
    up."""

    is_over: bool


class Desk:
    """The served backend, as routes see it.

    backend: the served one, for what concerns no client. current: the request in whose context this
    code runs. open: requests at work.
    deadline: of calls that have none.
    """

    def __init__(self, backend: Backend, metrics: Metrics, deadline: float | None = None) -> None:
        self.current: ContextVar[Ticket | None] = ContextVar("ticket", default=None)
        self.open: set[Ticket] = set()
        self.backend = backend
        self._metrics = metrics
        self._deadline = deadline
        self._end: BackendClosed | None = None
        self._bell: Bell | None = None

    def submit(self, call: Call) -> Reply:
        """As `Backend.submit`, in the namespace of the client who asks."""
        ticket = self.current.get() or Ticket("none")
        call = replace(
            call,
            namespace=within(ticket.client.namespace, call.namespace),
            deadline=self._deadline if call.deadline is None else call.deadline,
        )
        reply = WatchedReply(self.backend.submit(call), self._metrics, self._bell_here, ticket)
        ticket.add(reply)
        self._metrics.calls_open.inc()
        reply.when_done(self._note_end)
        return reply

    def cancel(self, reply: Reply) -> None:
        """As `Backend.cancel`."""
        reply.cancel()

    def info(self) -> BackendInfo:
        """As `Backend.info`."""
        return self.backend.info()

    def close(self) -> None:
        """As `Backend.close`."""
        self.backend.close()

    def check_alive(self) -> None:
        """Raise BackendClosed if the backend has ended. May wait for it."""
        if self._end is not None:
            raise self._end
        self.backend.info()

    def abort(self, request_id: str | None) -> int:
        """End the calls of a client's request (None: of all its requests; an admin's are
        everybody's) and return how many were open. The client is who asks now."""
        asking = self.current.get() or Ticket("none")
        found = [
            ticket
            for ticket in list(self.open)
            if ticket is not asking
            and request_id in (None, ticket.id)
            and (asking.client.is_admin or ticket.client.namespace == asking.client.namespace)
        ]
        return sum(ticket.cancel() for ticket in found)

    def end_calls(self) -> None:
        """End the calls of all requests, because the server shuts down."""
        for ticket in list(self.open):
            ticket.is_cut_off = True
            ticket.cancel()

    def clear_cache(self) -> int:
        """Forget what no open call uses; returns how many tokens. Raises UnsupportedCall."""
        if not isinstance(self.backend, Flushable):
            kind = type(self.backend).__name__
            raise UnsupportedCall("backend", kind, "one whose cache can be emptied")
        return self.backend.clear_cache()

    def _bell_here(self) -> Bell:
        """One for all streams of the running loop."""
        loop = asyncio.get_running_loop()
        if self._bell is None or self._bell.loop is not loop:
            self._bell = Bell(loop)
        return self._bell

    def _note_end(self, reply: Reply) -> None:
        self._metrics.calls_open.dec()
        error = reply.error()
        if isinstance(error, BackendClosed) and not isinstance(self.backend, Lasting):
            self._end = error
        if error is None and _is_aborted(reply):
            self._metrics.aborted.inc()


class WatchedReply:
    """A reply whose tokens are timed as they are read.

    The clock runs from the submission to the first chunk, and from each chunk to the next. Awaited
    for one of OpenAI's routes, it raises BackendClosed where the server's shutdown cut it off.
    """

    def __init__(
        self, reply: Reply, metrics: Metrics, bell: Callable[[], Bell], ticket: Ticket
    ) -> None:
        self._reply = reply
        self._metrics = metrics
        self._bell = bell
        self._ticket = ticket
        self._start = time.perf_counter()
        self._last: float | None = None

    @property
    def call(self) -> Call:
        """The call that this answers."""
        return self._reply.call

    def result(self, timeout: float | None = None) -> Completion:
        """As `Reply.result`."""
        return self._reply.result(timeout)

    def done(self) -> bool:
        """As `Reply.done`."""
        return self._reply.done()

    def error(self) -> BaseException | None:
        """As `Reply.error`."""
        return self._reply.error()

    def cancel(self) -> None:
        """As `Reply.cancel`."""
        self._reply.cancel()

    def when_done(self, action: Callable[[Reply], object]) -> None:
        """As `Reply.when_done`."""
        self._reply.when_done(lambda _: action(self))

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._reply)

    def __await__(self) -> Generator[Any, None, Completion]:
        completion = yield from self._reply.__await__()
        if self._ticket.is_cut_off and self._ticket.is_of_openai and _is_aborted(self):
            raise _shut_down()
        return completion

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for ready in self.batches():
            for chunk in ready:
                yield chunk

    def batches(
        self, bell: Bell | None = None, seen: Callable[[int], object] | None = None
    ) -> AsyncIterator[Sequence[Chunk]]:
        """As `Mailbox.batches`, by the bell of the desk where none is given."""

        def clocked(num: int) -> None:
            self._clock(num)
            if seen is not None:
                seen(num)

        return batches(self._reply, bell or self._bell(), self._clock if seen is None else clocked)

    def _clock(self, num: int) -> None:
        """Note the time of so many chunks, the first one's apart."""
        now = time.perf_counter()
        for _ in range(num):
            if self._last is None:
                self._metrics.first_token.observe(now - self._start)
            else:
                self._metrics.next_token.observe(now - self._last)
            self._last = now


def _shut_down() -> BackendClosed:
    return BackendClosed("the server is shutting down")


def _is_aborted(reply: Reply) -> bool:
    """Whether it has ended, without an error, and was ended early."""
    if not reply.done() or reply.error() is not None:
        return False
    return any(output.finish_reason == "abort" for output in reply.result(0).outputs)
