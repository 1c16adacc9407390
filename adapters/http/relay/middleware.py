"""ASGI middleware that relays requests where the served backend is a router over servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....core.api.protocol import ForkrootError
from ...relays import RelayHost, RelayRequest
from ..requests.bodies import REPORTED_ERRORS, BodyRoute
from ..server.errors import error_response, fault_of
from ..server.keys import within
from ..server.metrics import Metrics
from ..server.request_registry import RequestContext, RequestRegistry
from ..server.runtime import Runtime
from ..server.sse import WRITER
from .answer import RelayedAnswer
from .bodies import PATHS, Relayed, relayed_of


class RelayPath:
    """Around the routes: what is not relayed goes on to them. routes: by their paths."""

    def __init__(
        self,
        app: ASGIApp,
        host: RelayHost,
        runtime: Runtime,
        registry: RequestRegistry,
        metrics: Metrics,
        routes: Mapping[str, BodyRoute],
    ) -> None:
        self.app, self._host = app, host
        self._runtime, self._registry, self._metrics = runtime, registry, metrics
        self._routes = {path: routes[path] for path in PATHS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, host = scope.get("path", ""), self._host
        is_relay = path in self._routes and scope.get("method") == "POST"
        if not is_relay or not host.takes_relays(self._runtime.name):
            await self.app(scope, receive, send)
            return
        body = (await receive())["body"]
        http = Request(scope)
        kind = http.headers.get("content-type", "")
        prepare = partial(self._prepared, path, body, kind)
        known = await self._runtime.workers.run(len(body), prepare) if body else None
        if known is None:
            await self.app(scope, _again(body, receive), send)
            return
        scope["route"] = self._routes[path]
        context: RequestContext = http.state.request_context
        request = self._request(path, body, known, context)
        prepare_relay = partial(host.prepare_relay, request)  # which tokenizes its prompt
        begin = await self._runtime.workers.run(len(body), prepare_relay)
        answer = RelayedAnswer(request.call, context, self._metrics, request.flow)
        self._registry.watch(answer.reply, context, known.num_held)
        answer.cancel_there = begin(answer)
        try:
            writer = scope.get("extensions", {}).get(WRITER)
            await answer.send_to(send, None if writer is None else writer.write)
        except ForkrootError as error:
            context.refusal = fault_of(error).code
            await error_response(error)(scope, receive, send)
        finally:
            answer.close()

    def _prepared(self, path: str, body: bytes, content_type: str) -> Relayed | None:
        """What must be known of a body; None for one that its route has to read."""
        reader, runtime = self._routes[path].reader, self._runtime
        assert reader is not None
        try:
            given = reader.given(body, content_type)
        except REPORTED_ERRORS:
            return None
        return relayed_of(path, given, runtime.names, runtime.limits)

    def _request(
        self, path: str, body: bytes, known: Relayed, context: RequestContext
    ) -> RelayRequest:
        client, deadline = context.client, self._registry.within_deadline(None)
        namespace = within(client.namespace, known.call.namespace)
        call = replace(known.call, namespace=namespace, deadline=deadline)
        theirs: dict[str, object] = {"namespace": client.namespace, "tenant": client.tenant}
        theirs |= {"weight": client.weight, "deadline": deadline}
        return RelayRequest(path, body, call, theirs, context.id, known.is_stream)


def _again(body: bytes, receive: Receive) -> Receive:
    """ASGI messages: the body that was read, then the others."""
    parts = [body]

    async def again() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return again
