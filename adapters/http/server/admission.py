"""Admission of requests: authentication, limits, the access log and cancellation.

Every request passes this middleware. It gets an id, is checked against the limits, and is logged as
one line of JSON. Its calls are cancelled when its client disconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..wire.names import new_name
from ..wire.relaywire import CLIENT_HEADER, MARK, PREFIX, REPORT_HEADER, RelayedClient, report_of
from . import audit
from .browsers import Browsers
from .errors import Fault, Refused, error_response, fault_of
from .keys import ADMIN_PATHS, Client, Keys, relayed_by
from .large_json import check_json
from .metrics import Metrics
from .request_registry import RequestContext, RequestRegistry
from .runtime import Limits
from .structure import is_json
from .turns import Turns
from .workers import Workers

_log = logging.getLogger("forkroot.http")
_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)  # of a client's own
_BYTES_PER_SECOND = 1 << 16  # of a body that takes longer than the timeout
_KEPT = 8  # one part of so many of the requests at work is only for clients below their share
UNLIMITED_PATHS = ADMIN_PATHS | {"/abort_request"}
_RETRY_AFTER = 1  # seconds: another server may take the request at once


@dataclass(frozen=True, slots=True)
class AdmissionMiddleware:
    """ASGI middleware that authenticates, limits and logs; only that of CORS is around it.

    readers: methods and paths of the routes that read and check their bodies themselves.
    """

    app: ASGIApp
    registry: RequestRegistry
    keys: Keys
    metrics: Metrics
    limits: Limits
    workers: Workers
    browsers: Browsers
    turns: Turns
    readers: Collection[tuple[str, str]] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        given, relayed = headers.get(b"x-request-id", ""), None
        if scope["path"].startswith(PREFIX):
            scope, relayed = _as_relayed(scope, headers)
        context = RequestContext(given if _ID.fullmatch(given) else new_name(), route=scope["path"])
        answer = _Answer(send, context) if relayed is None else _RelayedAnswer(send, context)
        start = time.perf_counter()
        try:
            self.browsers.check(headers)
            context.client = self.keys.client(scope["path"], headers.get(b"authorization"))
            sender = context.client.tenant
            if _is_counted(scope) and sender != "admin":
                self.registry.rate_limits.admit(sender)
            if relayed is not None:
                context.client = relayed_by(context.client, relayed)
                context.deadline = relayed.deadline
            with self._admitted(scope, context):
                body = await self._body(receive, headers.get(b"content-length"))
                if _is_counted(scope):
                    await self.turns.take(sender, len(body))
                is_read = (scope["method"], scope["path"]) in self.readers
                if body and not is_read and is_json(headers.get(b"content-type", "")):
                    check = partial(check_json, body, self.limits.of_plugins)
                    await self.workers.run(len(body), check)
                await self._run(scope, body, receive, answer, context)
        except Exception as error:
            context.refusal = fault_of(error).code
            await self._fail(error, scope, receive, answer)
        finally:
            context.cancel()
            self._note(scope, context, answer, time.perf_counter() - start)
            context.replies.clear()  # they refer to it: all are freed without a collection

    @contextlib.contextmanager
    def _admitted(self, scope: Scope, context: RequestContext) -> Iterator[None]:
        """Count the request as open while it runs. Raises Refused when the server is full; requests
        that generate nothing are not counted."""
        if not _is_counted(scope):
            yield
            return
        if self.registry.is_draining:
            raise draining()
        num_open, most = len(self.registry.open), self.limits.max_streams
        if self.keys.are_several and num_open >= most - most // _KEPT:
            clients = [it.client for it in self.registry.open]
            own, share = share_of(context.client, clients, most)
            num_open, most = (own, share) if own >= share else (num_open, most)
        if num_open >= most:
            message = f"{num_open} requests are at work, as many as are allowed; try later"
            fault = Fault(503, "overloaded_error", "overloaded", retry_after=1)
            raise Refused(message, fault)
        self.registry.open.add(context)
        self.metrics.requests_open.inc()
        try:
            yield
        finally:
            self.registry.open.remove(context)
            self.metrics.requests_open.dec()

    async def _body(self, receive: Receive, length: str | None) -> bytes:
        """The whole body. Raises Refused if it is too large, or arrives too slowly."""
        if length is not None and length.isdecimal() and int(length) > self.limits.max_body:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            start = asyncio.get_running_loop().time()
            async with asyncio.timeout(self.limits.request_timeout) as timeout:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _ClientDisconnected
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.limits.max_body:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return b"".join(parts)
                    allowed = self.limits.request_timeout + size / _BYTES_PER_SECOND
                    timeout.reschedule(start + allowed)
        except TimeoutError as error:
            fault = Fault(408, "timeout_error", "body_too_slow")
            raise Refused("the body did not arrive in time", fault) from error

    def _too_large(self) -> Refused:
        message = f"the body is larger than {self.limits.max_body} bytes"
        return Refused(message, Fault(413, "invalid_request_error", "body_too_large"))

    async def _run(
        self, scope: Scope, body: bytes, receive: Receive, answer: _Answer, context: RequestContext
    ) -> None:
        """Run the routes, and cancel them when the client disconnects."""
        scope.setdefault("state", {})["request_context"] = context
        self.registry.current.set(context)
        work = asyncio.current_task()
        assert work is not None
        disconnected = asyncio.Event()
        watch = asyncio.create_task(_cancel_on_disconnect(receive, work, context, disconnected))
        try:
            await self.app(scope, _replay_body(body, disconnected), answer.send)
        except asyncio.CancelledError:
            if not disconnected.is_set() or work.uncancel():  # it was cancelled by others, too
                raise
        finally:
            watch.cancel()

    async def _fail(
        self, error: Exception, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        if isinstance(error, _ClientDisconnected):
            return
        if fault_of(error).status == 500:
            _log.exception("a route failed")
        if not answer.status:
            with contextlib.suppress(OSError):
                await error_response(error)(scope, receive, answer.send)

    def _note(self, scope: Scope, context: RequestContext, answer: _Answer, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        status = answer.status or 499
        self.metrics.requests.labels(route, str(status)).inc()
        reason, usage = context.reason, context.usage
        if reason is not None:
            self.metrics.refused.labels(reason).inc()
        self.metrics.duration.labels(route).observe(seconds)
        line = {
            "id": context.id,
            "client": context.client.name,
            "method": scope["method"],
            "route": context.route,
            "status": status,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "seconds": round(seconds, 6),
        }
        error = reason or (None if answer.is_whole else "client_left")
        if error is not None:
            line["error"] = error
        _log.info("%s", json.dumps(line))
        audit.note(line)


def draining() -> Refused:
    """The error of a request that comes while the server drains."""
    text = "the server is draining and takes no new requests; send them to another one"
    return Refused(text, Fault(503, "server_error", "draining", retry_after=_RETRY_AFTER))


def share_of(client: Client, at_work: Sequence[Client], most: int) -> tuple[int, int]:
    """How many requests of a client are at work, and how many may be once most of the allowed ones
    are: its share by weight beside the others that have some, but not all.

    at_work: the client of each request. most: requests at a time.
    """
    weights = {it.tenant: it.weight for it in at_work} | {client.tenant: client.weight}
    share = int(most * client.weight / sum(weights.values()))
    own = sum(it.tenant == client.tenant for it in at_work)
    return own, max(1, min(share, most - most // _KEPT))


def _is_counted(scope: Scope) -> bool:
    """Whether a request may generate something."""
    return scope["method"] in ("POST", "PUT") and scope["path"] not in UNLIMITED_PATHS


class _ClientDisconnected(Exception):
    """The client disconnected before its whole request had arrived."""


class _Answer:
    """The response, with the request's id as a header. status: 0 until it starts. is_whole: all of
    it was sent."""

    def __init__(self, send: Send, context: RequestContext) -> None:
        self._send = send
        self._context = context
        self._id = context.id.encode()  # as it came: a body may name its request otherwise
        self.status = 0
        self.is_whole = False

    async def send(self, message: Message) -> None:
        """Send a message of ASGI."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = (b"x-request-id", self._id)
            message["headers"] = [*message.get("headers", ()), own]
        await self._send(message)
        if message["type"] == "http.response.body":
            self.is_whole = not message.get("more_body", False)


class _RelayedAnswer(_Answer):
    """The response to a router, with a report of what it used: in a header, or after a stream."""

    _is_stream = False

    async def send(self, message: Message) -> None:
        """As `_Answer.send`."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            self._is_stream = any(it.startswith(b"text/event-stream") for _, it in headers)
            if not self._is_stream and message["status"] == 200:
                headers.append((REPORT_HEADER.lower().encode(), self._report()))
            message["headers"] = headers
        elif self._is_stream and not message.get("more_body", False):
            comment = MARK + self._report() + b"\n\n"
            message = {**message, "body": message.get("body", b"") + comment}
        await super().send(message)

    def _report(self) -> bytes:
        replies = [it for it in list(self._context.replies) if it.done() and it.error() is None]
        return report_of([it.result(0) for it in replies])


def _as_relayed(scope: Scope, headers: Mapping[bytes, str]) -> tuple[Scope, RelayedClient | None]:
    """The request that was relayed, and whose it is; any other one as it is."""
    path = scope["path"].removeprefix(PREFIX)
    header = headers.get(CLIENT_HEADER.lower().encode())
    if header is None or not path.startswith("/"):
        return scope, None
    try:
        client = RelayedClient.read(header)
    except (ValueError, TypeError, RecursionError):
        return scope, None  # a route that there is not
    own: dict[str, Any] = {**scope, "path": path, "raw_path": path.encode()}
    return own, client


def _replay_body(body: bytes, disconnected: asyncio.Event) -> Receive:
    """ASGI messages: the body that was read, then the disconnection."""
    parts = [body]

    async def receive() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        await disconnected.wait()
        return {"type": "http.disconnect"}

    return receive


async def _cancel_on_disconnect(
    receive: Receive, work: asyncio.Task[Any], context: RequestContext, disconnected: asyncio.Event
) -> None:
    """Cancel a request's calls and its task when its client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    context.cancel()
    disconnected.set()
    work.cancel()
