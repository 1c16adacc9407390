"""Requests that a router relays: whose they are, and the report of what they used, which follows
their answers.

A router with an admin's key says whose a request is. Any other one may name a part of its own part
of the cache, as it may in every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.types import Message, Scope, Send

from ..wire.relaywire import CLIENT_HEADER, MARK, PREFIX, REPORT_HEADER, RelayedClient, report_of
from .keys import Client, within
from .request_registry import RequestContext

_HEADER = CLIENT_HEADER.lower().encode()
__all__ = ["PREFIX", "Answer", "RelayedReport", "as_relayed", "take_as"]


class Answer:
    """The response, with the request's id as a header. status: 0 until it starts. is_whole: all of
    it was sent."""

    def __init__(self, send: Send, context: RequestContext) -> None:
        self._send = send
        self._context = context
        self.status = 0
        self.is_whole = False

    async def send(self, message: Message) -> None:
        """Send a message of ASGI."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = (b"x-request-id", self._context.id.encode())
            message["headers"] = [*message.get("headers", ()), own]
        await self._send(message)
        if message["type"] == "http.response.body":
            self.is_whole = not message.get("more_body", False)


class RelayedReport(Answer):
    """The response to a router, with a report of what it used: in a header, or after a stream."""

    _is_stream = False

    async def send(self, message: Message) -> None:
        """As `Answer.send`."""
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


def as_relayed(scope: Scope, headers: Mapping[bytes, str]) -> tuple[Scope, RelayedClient | None]:
    """The request that was relayed, and whose it is; any other one as it is."""
    path = scope["path"].removeprefix(PREFIX)
    header = headers.get(_HEADER)
    if header is None or not path.startswith("/"):
        return scope, None
    try:
        client = RelayedClient.read(header)
    except (ValueError, TypeError, RecursionError):
        return scope, None  # a route that there is not
    own: dict[str, Any] = {**scope, "path": path, "raw_path": path.encode()}
    return own, client


def take_as(relayed: RelayedClient, context: RequestContext) -> None:
    """Take the request as its client's, as far as its sender may say."""
    sender, namespace = context.client, within(context.client.namespace, relayed.namespace)
    context.deadline = relayed.deadline
    if not relayed.namespace:
        namespace = sender.namespace
    if sender.is_admin:
        tenant, weight = relayed.tenant, relayed.weight
        context.client = Client(namespace, False, tenant, weight, sender.name)
    else:
        context.client = replace(sender, namespace=namespace)
