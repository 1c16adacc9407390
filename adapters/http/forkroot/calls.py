"""The protocol itself over HTTP: a `Call` in, its reply out; the other end is `RemoteBackend`.

The reply is a stream of server-sent events: `{"accepted": id}`, any number of `{"chunk": ...}`, and
exactly one of `{"completion": ...}` and `{"error": ..., "forkroot": ...}`. While nothing happens a
comment is sent from time to time, so that a client knows a silent server from a dead one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from ....core.api.protocol import BackendInfo, Call, ForkrootError, InvalidCall, Reply
from ...programs import FEATURE
from ...relays import RELAY_FEATURE
from ..requests.bodies import BodyRoute, prepared
from ..requests.reading import size_of
from ..server.concurrent_calls import submit_in_thread
from ..server.errors import Fault, Refused, failed_body, fault_of
from ..server.runtime import Limits, Runtime
from ..server.sse import Arrival, Event, EventStream, Final, Last, arrivals, encode, events_of
from ..wire.callwire import (
    INFO_PATH,
    PATH,
    SILENCE,
    call_of,
    plain,
    plain_error,
)

COMMENT = b": at work\n\n"


def routes(runtime: Runtime) -> APIRouter:
    """The routes of calls."""
    router = APIRouter(tags=["forkroot"], route_class=BodyRoute.of(runtime))
    at_work: dict[str, tuple[str, Reply]] = {}  # by the call's id: whose it is, and it

    @router.post(PATH)
    async def submit(body: dict[str, Any], request: Request) -> Response:
        """One call of forkroot's protocol. The answer is server-sent events."""

        def checked() -> Call:
            call = call_of(body)
            call.check()
            check_limits(call, runtime.limits)
            return call

        try:
            call = await prepared(runtime, request, checked)
        except ForkrootError as error:
            return refusal(error)
        (reply,) = await submit_in_thread(lambda: [runtime.backend.submit(call)])
        failure = reply.error()
        if isinstance(failure, ForkrootError):
            return refusal(failure)
        name = uuid.uuid4().hex
        at_work[name] = owner_of(request), reply
        reply.when_done(lambda _: at_work.pop(name, None))
        return EventStream(_event_stream(name, reply))

    @router.delete(PATH + "/{name}")
    async def cancel(name: str, request: Request) -> dict[str, Any]:
        """End an open call early; its answer ends with what there is."""
        owner, reply = at_work.get(name, (None, None))
        if reply is None or owner != owner_of(request):
            message = f"no call at work has the id {name!r:.100}"
            raise Refused(message, Fault(404, "invalid_request_error", "call_not_found", "id"))
        reply.cancel()
        return {"id": name, "cancelled": True}

    @router.get(INFO_PATH)
    async def info(request: Request) -> dict[str, Any]:
        """What the server runs: model, features, counters and load."""
        found: BackendInfo = await asyncio.to_thread(runtime.backend.info)
        sees_all = request.state.request_context.client.is_admin
        # Only an admin may see counters of other clients.
        counters, load = (found.counters, found.load) if sees_all else ({}, {})
        found = replace(
            found,
            model=runtime.name,
            counters=counters,
            load=load,
            version=runtime.version,
            features=found.features | {FEATURE, RELAY_FEATURE},
        )
        shown: dict[str, Any] = plain(found)
        return shown

    return router


def owner_of(request: Request) -> str:
    """Who the request's client is, also where clients share the cache."""
    return str(request.state.request_context.client.tenant)


def check_limits(call: Call, limits: Limits) -> None:
    """Raise InvalidCall for what exceeds the limits of one request."""
    sampling = call.sampling
    for field, count, most in (
        ("n", sampling.n, limits.max_n),
        ("stop", len(sampling.stop), limits.max_stops),
        ("logprobs", sampling.logprobs or 0, limits.max_top_logprobs),
        ("options", len(call.options), limits.max_answers),
        ("constraint", size_of(call.constraint), limits.max_constraint),
    ):
        if count > most:
            raise InvalidCall(field, count, f"at most {most} (of this server)")


def refusal(error: ForkrootError) -> Response:
    """The answer to a call that was not accepted."""
    fault = fault_of(error)
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    return JSONResponse(error_event(error), fault.status, headers)


def error_event(error: ForkrootError) -> Event:
    """The error of a call: in the format of other routes, and as a value of the protocol."""
    body, fields = failed_body(error), plain_error(error)
    if "message" in fields:
        fields["message"] = body["error"]["message"]
    return {**body, "forkroot": fields}


async def _event_stream(name: str, reply: Reply) -> AsyncIterator[bytes]:
    """The whole answer to a call, piece by piece."""
    yield encode([{"accepted": name}])
    batches = _batches(reply)
    batch = asyncio.ensure_future(anext(batches, None))
    try:
        while True:
            done, _ = await asyncio.wait({batch}, timeout=SILENCE)
            if not done:
                yield COMMENT
                continue
            events = batch.result()
            if events is None:
                return
            if events:
                yield Final(encode(events)) if isinstance(events, Last) else encode(events)
            batch = asyncio.ensure_future(anext(batches, None))
    finally:
        reply.cancel()
        batch.cancel()


async def _batches(reply: Reply) -> AsyncIterator[list[Event]]:
    try:
        async for events in events_of(arrivals([reply]), _events):
            yield events
    except ForkrootError as error:
        yield Last([error_event(error)])


def _events(arrival: Arrival) -> list[Event]:
    if arrival.chunk is None:
        return [{"completion": plain(arrival.completion)}]
    return [{"chunk": plain(arrival.chunk)}]
