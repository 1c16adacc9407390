"""Routes for operators: health, readiness, metrics, and commands."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from ....core.api.protocol import (
    BackendInfo,
    Call,
    EngineDied,
    ForkrootError,
    InvalidCall,
    Sampling,
    Text,
)
from ..requests.bodies import BodyRoute
from ..requests.work import Work, complete
from ..server.admission import draining
from ..server.errors import Fault, Refused
from ..server.metrics import Metrics
from ..server.request_registry import RequestRegistry
from ..server.runtime import Runtime
from ..wire.wire import Body

_SECONDS_FOR_A_TOKEN = 20.0
_SECONDS_TO_ANSWER = 5.0


class AbortRequest(Body):
    """POST /abort_request. rid: of a request, as in its X-Request-Id. abort_all: of the client's
    requests; of all, for an admin."""

    rid: str | None = None
    abort_all: bool | None = None


def routes(runtime: Runtime, registry: RequestRegistry, metrics: Metrics) -> APIRouter:
    """The routes of operation."""
    router = APIRouter(route_class=BodyRoute.of(runtime))
    _add_health(router, runtime, registry)
    _add_control(router, registry)

    @router.get("/metrics")
    async def prometheus() -> Response:
        """Metrics in the format of Prometheus."""
        page = await asyncio.to_thread(metrics.page)
        return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return router


def _add_health(router: APIRouter, runtime: Runtime, registry: RequestRegistry) -> None:
    """Add the routes which say whether the server and its engine work."""
    thread = ThreadPoolExecutor(1, "forkroot-health")

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Whether the engine is alive."""
        await _check_alive(registry, thread)
        return {"status": "ok"}

    @router.get("/ready")
    async def ready() -> dict[str, str]:
        """Whether the server takes requests; 503 while it drains, or no replica takes calls."""
        if registry.is_draining:
            raise draining()
        info = await _check_alive(registry, thread)
        if info.load.get("ready_replicas", 1) < 1:
            raise _unready("no replica takes calls now")
        if len(registry.open) >= runtime.limits.max_streams:
            raise _unready("as many requests are at work as are allowed")
        return {"status": "ready"}

    @router.get("/health_generate")
    async def health_generate() -> dict[str, Any]:
        """Whether the engine generates: it writes one token."""
        sampling = Sampling(max_tokens=1, temperature=0.0)
        call = Call((Text("Hello"),), sampling, deadline=_SECONDS_FOR_A_TOKEN)
        try:
            (completion,) = await complete(runtime, Work((call,), {}))
        except EngineDied:
            raise
        except ForkrootError as error:
            raise _unready("no token can be generated") from error
        return {"status": "ok", "tokens": completion.usage.completion_tokens}


def _add_control(router: APIRouter, registry: RequestRegistry) -> None:
    """Add the routes which evict what is cached, drain the server and end requests."""

    @router.post("/reset_prefix_cache")  # as vLLM calls it
    @router.post("/flush_cache")
    async def flush_cache() -> dict[str, Any]:
        """Evict all cached tokens that no open call uses."""
        tokens = await asyncio.to_thread(registry.clear_cache)
        return {"success": True, "tokens": tokens}

    @router.post("/drain")
    async def drain() -> dict[str, Any]:
        """Take no new requests from now on; open ones go on."""
        return {"draining": True, "open": registry.drain(True)}

    @router.delete("/drain")
    async def resume() -> dict[str, Any]:
        """Take requests again after a drain."""
        return {"draining": False, "open": registry.drain(False)}

    @router.post("/abort_request")
    async def abort_request(request: AbortRequest) -> Response:
        """End requests early: those of a `rid`, or all of this client."""
        if not request.rid and not request.abort_all:
            raise InvalidCall("rid", request.rid, "the id of a request, or abort_all=true")
        return JSONResponse({"aborted": registry.abort(None if request.abort_all else request.rid)})


async def _check_alive(registry: RequestRegistry, thread: ThreadPoolExecutor) -> BackendInfo:
    """What the backend says of itself; raises unless it answers. `thread` is its own, so that it
    waits for no request."""
    try:
        async with asyncio.timeout(_SECONDS_TO_ANSWER):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(thread, registry.check_alive)
    except EngineDied:
        raise
    except ForkrootError as error:
        raise _unready("the backend has ended") from error
    except TimeoutError as error:
        raise _unready("the backend does not answer") from error


def _unready(message: str) -> Refused:
    return Refused(message, Fault(503, "server_error", "not_ready", retry_after=5))
