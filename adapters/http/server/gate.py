"""The way into the server: who asks, whether there is room, and what becomes of it.

Everything passes here, whatever route it takes: it gets an id, is weighed against the limits, and
is logged as one line of JSON. When its client goes away, its calls end at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..wire.callwire import PATH
from ..wire.names import new_name
from .desk import Desk, Ticket
from .errors import Fault, Refused, error_response, fault_of
from .keys import ADMIN_PATHS, Keys
from .metrics import Metrics
from .runtime import Limits
from .texts import check_body

_log = logging.getLogger("forkroot.http")
_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_SECONDS_FOR_A_BODY = 60.0
WORKLESS_PATHS = ADMIN_PATHS | {"/abort_request"}


class Gate:
    """ASGI middleware: the outermost of the server's own."""

    def __init__(
        self, app: ASGIApp, desk: Desk, keys: Keys, metrics: Metrics, limits: Limits
    ) -> None:
        self.app = app
        self._desk = desk
        self._keys = keys
        self._metrics = metrics
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        ticket = Ticket(_request_id(headers.get(b"x-request-id")), route=scope["path"])
        answer = _Answer(send, ticket.id)
        start = time.perf_counter()
        try:
            ticket.client = self._keys.client(scope["path"], headers.get(b"authorization"))
            with self._place(scope, ticket):
                body = await self._body(receive, headers.get(b"content-length"))
                if scope["path"] != PATH:  # whose calls check themselves
                    check_body(body)
                await self._run(scope, body, receive, answer, ticket)
        except Exception as error:
            ticket.refusal = fault_of(error).code
            await self._fail(error, scope, receive, answer)
        finally:
            ticket.cancel()
            self._note(scope, ticket, answer, time.perf_counter() - start)

    @contextlib.contextmanager
    def _place(self, scope: Scope, ticket: Ticket) -> Iterator[None]:
        """A place among the requests at work. Raises Refused when all are taken; what asks for no
        work needs none."""
        if scope["method"] not in ("POST", "PUT") or scope["path"] in WORKLESS_PATHS:
            yield
            return
        num_open = len(self._desk.open)
        if num_open >= self._limits.max_streams:
            message = f"{num_open} requests are at work, as many as are allowed; try later"
            fault = Fault(503, "overloaded_error", "overloaded", retry_after=1)
            raise Refused(message, fault)
        self._desk.open.add(ticket)
        self._metrics.requests_open.inc()
        try:
            yield
        finally:
            self._desk.open.remove(ticket)
            self._metrics.requests_open.dec()

    async def _body(self, receive: Receive, length: str | None) -> bytes:
        """The whole body. Raises Refused for one that is too large, or too slow."""
        if length is not None and length.isdecimal() and int(length) > self._limits.max_body:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_SECONDS_FOR_A_BODY):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._limits.max_body:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            fault = Fault(408, "timeout_error", "body_too_slow")
            raise Refused("the body did not arrive in time", fault) from error

    def _too_large(self) -> Refused:
        message = f"the body is larger than {self._limits.max_body} bytes"
        return Refused(message, Fault(413, "invalid_request_error", "body_too_large"))

    async def _run(
        self, scope: Scope, body: bytes, receive: Receive, answer: _Answer, ticket: Ticket
    ) -> None:
        """Let the routes answer, and stop them when the client goes away."""
        scope.setdefault("state", {})["ticket"] = ticket
        self._desk.current.set(ticket)
        work = asyncio.current_task()
        assert work is not None
        gone = asyncio.Event()
        watch = asyncio.create_task(_stop_without_client(receive, work, ticket, gone))
        try:
            await self.app(scope, _replay(body, gone), answer.send)
        except asyncio.CancelledError:
            if not gone.is_set() or work.uncancel():  # others want it stopped, too
                raise
        finally:
            watch.cancel()

    async def _fail(
        self, error: Exception, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        if isinstance(error, _Gone):
            return
        if fault_of(error).status == 500:
            _log.exception("a route failed")
        if not answer.status:
            with contextlib.suppress(OSError):
                await error_response(error)(scope, receive, answer.send)

    def _note(self, scope: Scope, ticket: Ticket, answer: _Answer, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        status = answer.status or 499
        self._metrics.requests.labels(route, str(status)).inc()
        if ticket.reason is not None:
            self._metrics.refused.labels(ticket.reason).inc()
        self._metrics.duration.labels(route).observe(seconds)
        usage = ticket.usage
        line = {
            "id": ticket.id,
            "method": scope["method"],
            "route": ticket.route,
            "status": status,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "seconds": round(seconds, 6),
        }
        error = ticket.reason or (None if answer.is_whole else "client_left")
        if error is not None:
            line["error"] = error
        _log.info("%s", json.dumps(line))


class _Gone(Exception):
    """The client went away before it had asked."""


class _Answer:
    """What is sent back, with the request's id. status: 0 until the answer has begun. is_whole: all
    of it was sent."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._id = request_id.encode()
        self.status = 0
        self.is_whole = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._id)]
        await self._send(message)
        if message["type"] == "http.response.body":
            self.is_whole = not message.get("more_body", False)


def _request_id(given: str | None) -> str:
    """The client's own id where it is a plain word, else a new one."""
    return given if given and _ID.fullmatch(given) else new_name()


def _replay(body: bytes, gone: asyncio.Event) -> Receive:
    """A body that has arrived, then nothing until the client goes away."""
    parts = [body]

    async def receive() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive


async def _stop_without_client(
    receive: Receive, work: asyncio.Task[Any], ticket: Ticket, gone: asyncio.Event
) -> None:
    """End a request's calls, and its work, when its client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    ticket.cancel()
    gone.set()
    work.cancel()
