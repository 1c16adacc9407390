"""The registry of open requests, and the context of each one.

`RequestRegistry` wraps the served backend. Routes submit calls to it; it finds the request that a
call belongs to in a context variable, sets the client's namespace, and can cancel a request's
calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast, runtime_checkable

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
from ....core.api.reply import LoopNotifier, batches
from .errors import fault_of
from .keys import Client, within
from .metrics import Metrics
from .rate_limits import RateLimits, Rates


@dataclass(slots=True, eq=False)
class RequestContext:
    """One open request. Mutable: routes add replies, from any thread.

    refusal: the code of the error that the request was answered with.
    is_disconnected: the client has disconnected, or the request was aborted.
    is_cut_off: the server's shutdown has ended its calls.
    deadline: of its calls that name none, as a router has it; None: that of the server.
    """

    id: str
    client: Client = field(default_factory=Client)
    route: str = ""
    replies: list[Reply] = field(default_factory=list)
    refusal: str | None = None
    is_disconnected: bool = False
    is_cut_off: bool = False
    deadline: float | None = None

    def add(self, reply: Reply) -> None:
        """Add a call of this request; cancel it if the client has disconnected."""
        self.replies.append(reply)
        if self.is_disconnected:
            reply.cancel()

    def cancel(self) -> int:
        """Cancel all calls of this request, later ones too; returns how many were open."""
        self.is_disconnected = True
        left = [reply for reply in list(self.replies) if not reply.done()]
        for reply in left:
            reply.cancel()
        return len(left)

    @property
    def usage(self) -> Usage:
        """Tokens of its calls that have succeeded."""
        ended = [it for it in list(self.replies) if it.done() and it.error() is None]
        return sum((it.result(0).usage for it in ended), Usage())

    @property
    def reason(self) -> str | None:
        """The error code of a refused or failed request; None for any other."""
        errors = [error for it in list(self.replies) if (error := it.error()) is not None]
        if not errors and self.is_cut_off and any(map(_is_aborted, list(self.replies))):
            errors.append(_shut_down())
        return fault_of(errors[0]).code if errors else self.refusal

    @property
    def is_openai(self) -> bool:
        """Whether its route belongs to OpenAI's API, which has no finish reason "abort"."""
        return self.route.startswith("/v1/") and not self.route.startswith("/v1/forkroot/")


@runtime_checkable
class Restarting(Protocol):
    """A backend that restarts an engine that has died. is_over: it has given up."""

    is_over: bool


class RequestRegistry:
    """The open requests, and the backend that routes submit their calls to.

    backend: the served one. current: the context of the request being handled. open: the open
      requests. deadline: of calls that have none. rate_limits: of each tenant; None: no
      limits. is_draining: no new request is taken; open ones go on.
    """

    def __init__(
        self,
        backend: Backend,
        metrics: Metrics,
        deadline: float | None = None,
        rate_limits: RateLimits | None = None,
    ) -> None:
        self.current = ContextVar[RequestContext | None]("request_context", default=None)
        self.open: set[RequestContext] = set()
        self.is_draining = False
        self.backend = backend
        self._metrics = metrics
        self._deadline = deadline
        self.rate_limits = rate_limits or RateLimits(Rates())
        self._fatal_error: BackendClosed | None = None
        self._notifier: LoopNotifier | None = None

    def submit(self, call: Call) -> Reply:
        """As `Backend.submit`, in the namespace of the current request's client."""
        context = self.current.get() or RequestContext("none", Client(is_admin=True))
        client = context.client
        if not client.is_admin or call.tenant is None:
            call = replace(call, tenant=client.tenant, weight=client.weight)
        call = replace(
            call,
            namespace=within(client.namespace, call.namespace),
            deadline=self.within_deadline(
                context.deadline if call.deadline is None else call.deadline
            ),
        )
        own = self.backend.submit(call)
        watched = WatchedReply(own, self._metrics, self._loop_notifier, context)
        reply = cast(Reply, watched)  # with `__getattr__`
        context.add(reply)
        self._metrics.calls_open.inc()
        held = (call.sampling.max_tokens or 0) * call.sampling.n
        self.rate_limits.take_tokens(client.tenant, held)
        reply.when_done(lambda it: self._settle(client.tenant, held, it))
        reply.when_done(self._note_end)
        return reply

    def watch(self, reply: Reply, context: RequestContext, held: int = 0) -> None:
        """Count a call of this request that was not submitted here: a whole program's run, or a
        relayed request. held: tokens that it may generate."""
        context.add(reply)
        self._metrics.calls_open.inc()
        tenant = context.client.tenant
        self.rate_limits.take_tokens(tenant, held)
        reply.when_done(lambda it: self._settle(tenant, held, it))
        reply.when_done(self._note_end)

    def within_deadline(self, deadline: float | None) -> float | None:
        """The deadline of a call that has this one."""
        return self._deadline if deadline is None else deadline

    def cancel(self, reply: Reply) -> None:
        """As `Backend.cancel`."""
        reply.cancel()

    def info(self) -> BackendInfo:
        """As `Backend.info`."""
        return self.backend.info()

    def close(self) -> None:
        """As `Backend.close`."""
        self.backend.close()

    def drain(self, is_draining: bool) -> int:
        """Take no new requests from now on, or take them again; returns how many are open."""
        self.is_draining = is_draining
        self._metrics.draining.set(is_draining)
        return len(self.open)

    def check_alive(self) -> BackendInfo:
        """What the backend says of itself, which may take long. Raises BackendClosed if it has
        ended."""
        if self._fatal_error is not None:
            raise self._fatal_error
        return self.backend.info()

    def abort(self, request_id: str | None) -> int:
        """Cancel the calls of one of the current client's requests (None: of all of them; an admin
        may abort anybody's) and return how many were open."""
        requester = self.current.get() or RequestContext("none")
        client, found = requester.client, set(self.open) - {requester}
        return sum(
            context.cancel()
            for context in found
            if request_id in (None, context.id)
            and (client.is_admin or context.client.tenant == client.tenant)
        )

    def end_calls(self) -> None:
        """Cancel the calls of all open requests because the server shuts down."""
        for context in list(self.open):
            context.is_cut_off = True
            context.cancel()

    def clear_cache(self) -> int:
        """Evict what no open call uses; returns how many tokens. Raises UnsupportedCall."""
        clear: Callable[[], int] | None = getattr(self.backend, "clear_cache", None)
        if clear is None:
            kind = type(self.backend).__name__
            raise UnsupportedCall("backend", kind, "a backend whose cache can be cleared")
        return clear()

    def _loop_notifier(self) -> LoopNotifier:
        """The notifier that all streams of the running event loop share."""
        loop = asyncio.get_running_loop()
        if self._notifier is None or self._notifier.loop is not loop:
            self._notifier = LoopNotifier(loop)
        return self._notifier

    def _settle(self, tenant: str, held: int, reply: Reply) -> None:
        """Count the tokens that a call has used, in place of those held for it."""
        usage = Usage() if reply.error() is not None else reply.result(0).usage
        used = usage.prompt_tokens + usage.completion_tokens
        self.rate_limits.take_tokens(tenant, used - held)

    def _note_end(self, reply: Reply) -> None:
        self._metrics.calls_open.dec()
        error = reply.error()
        if isinstance(error, BackendClosed) and not isinstance(self.backend, Restarting):
            self._fatal_error = error
        if error is None and _is_aborted(reply):
            self._metrics.aborted.inc()


@dataclass(eq=False)
class WatchedReply:
    """A reply that measures the time to its first token and between tokens; all else is the
    backend's own.

    Awaiting it on one of OpenAI's routes raises BackendClosed if the server's shutdown ended it.
    """

    _reply: Reply
    _metrics: Metrics
    _notifier: Callable[[], LoopNotifier]
    _context: RequestContext
    _start: float = field(default_factory=time.perf_counter)
    _last: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reply, name)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._reply)

    def __await__(self) -> Generator[Any, None, Completion]:
        completion = yield from self._reply.__await__()
        if self._context.is_cut_off and self._context.is_openai and _is_aborted(self._reply):
            raise _shut_down()
        return completion

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for ready in self.batches():
            for chunk in ready:
                yield chunk

    def batches(
        self, notifier: LoopNotifier | None = None, seen: Callable[[int], object] | None = None
    ) -> AsyncIterator[Sequence[Chunk]]:
        """As `Mailbox.batches`; notifier: the registry's if None."""

        def timed(num: int) -> None:
            now = time.perf_counter()
            for _ in range(num):
                if self._last is None:
                    self._metrics.first_token.observe(now - self._start)
                else:
                    self._metrics.next_token.observe(now - self._last)
                self._last = now
            if seen is not None:
                seen(num)

        return batches(self._reply, notifier or self._notifier(), timed)


def _shut_down() -> BackendClosed:
    return BackendClosed("the server is shutting down")


def _is_aborted(reply: Reply) -> bool:
    """Whether it has ended without an error, but was cancelled."""
    if not reply.done() or reply.error() is not None:
        return False
    return any(output.finish_reason == "abort" for output in reply.result(0).outputs)
