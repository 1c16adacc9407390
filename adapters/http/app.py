"""The ASGI application: all routes, behind the admission middleware."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match, Route

from ...core.api.protocol import Backend
from ...core.common.suggestions import did_you_mean
from ..registry import registry
from ..relays import RelayHost
from .forkroot import calls, operation, page, prefixes, reports
from .openai import chat, completions, models, responses
from .programs import routes as programs
from .relay.middleware import RelayPath
from .requests.bodies import REPORTED_ERRORS, BodyRoute, BodyRoutes, FastPath, is_reader
from .requests.unknown import HEADER
from .requests.validation_errors import validation_error
from .server.admission import AdmissionMiddleware
from .server.browsers import Browsers
from .server.errors import Fault, Refused, error_response, fault_of
from .server.fetch import Fetcher
from .server.keys import Keys
from .server.metrics import Metrics
from .server.rate_limits import RateLimits
from .server.request_registry import RequestRegistry
from .server.runtime import Elsewhere, Runtime
from .server.settings import Settings
from .server.texts import CheckedTexts
from .server.turns import Turns
from .sglang import routes as sglang

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_MOST_CHARS = 100  # of a path that is compared with those of routes
_NUM_THREADS = 32  # in which calls are tokenized and compiled


def build_app(runtime: Runtime, settings: Settings | None = None) -> FastAPI:
    """The server of one model. settings: who may use it; None: everybody."""
    settings = settings or Settings()
    metrics = Metrics(runtime.backend)
    keys = Keys(settings)
    rate_limits = RateLimits(settings.rates, by_tenant=keys.rates)
    requests = RequestRegistry(runtime.backend, metrics, runtime.limits.deadline, rate_limits)
    passes_on = isinstance(runtime.backend, Elsewhere)
    texts = CheckedTexts(runtime.texts, runtime.backend.info)
    served = replace(runtime, backend=requests, texts=texts, passes_on=passes_on)
    if settings.media_hosts:
        served = replace(served, fetcher=Fetcher(settings.media_hosts))
    app = FastAPI(title="forkroot", lifespan=_with_threads, docs_url=None, redoc_url=None)
    app.state.requests = requests
    modules = (chat, completions, responses, sglang, calls, prefixes)
    routers = [module.routes(served) for module in modules]
    routers += [
        models.routes(served, settings),
        programs.routes(served, requests),
        operation.routes(served, requests, metrics),
        page.routes(runtime),
        reports.routes(runtime),
    ]
    for router in routers:
        app.include_router(router)
    app.state.paths = defaultdict(set)
    for route in (it for router in routers for it in router.routes if isinstance(it, Route)):
        app.state.paths[route.path] |= route.methods or set()
    bodies = [it for router in routers for it in router.routes if is_reader(it)]
    app.add_middleware(FastPath, routes=BodyRoutes(bodies), on_error=_report_error)
    _add_relay(app, runtime.backend, served, metrics, bodies)
    registry().add_routes(app, served)
    registry().started(runtime.backend)
    app.add_middleware(
        AdmissionMiddleware,
        registry=requests,
        keys=keys,
        metrics=metrics,
        limits=runtime.limits,
        workers=runtime.workers,
        browsers=Browsers(settings),
        turns=Turns(),
        readers=frozenset((method, it.path) for it in bodies for method in it.methods or ()),
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", HEADER, "Retry-After"],
        )
    for kind in REPORTED_ERRORS:
        app.add_exception_handler(kind, _report_error)
    return app


def _add_relay(
    app: FastAPI, backend: Backend, served: Runtime, metrics: Metrics, bodies: Iterable[BodyRoute]
) -> None:
    """Where the backend is a router over servers, relay what can be relayed."""
    app.state.relays = backend
    if isinstance(backend, RelayHost):
        app.add_middleware(
            RelayPath,
            host=backend,
            runtime=served,
            registry=app.state.requests,
            metrics=metrics,
            routes={it.path: it for it in bodies},
        )


async def _report_error(request: Request, error: Exception) -> Response:
    """The error as a response in OpenAI's format."""
    match error:
        case RequestValidationError():
            content_type = request.headers.get("content-type")
            field = getattr(request.scope.get("route"), "body_field", None)
            kind = Any if field is None else field.field_info.annotation
            error = validation_error(error.errors(), error.body, kind, content_type)
        case HTTPException(status_code=404):
            text = f"{request.method} {request.url.path} is not a route of this server"
            text += _suggestion(request)
            error = Refused(text, Fault(404, "invalid_request_error", "unknown_url"))
        case HTTPException(status_code=405):
            allowed = ", ".join(_methods(request))
            text = f"{request.method} is not allowed for {request.url.path}; expected {allowed}"
            fault = Fault(405, "invalid_request_error", "method_not_allowed", allowed=allowed)
            error = Refused(text, fault)
        case HTTPException():
            fault = Fault(error.status_code, "invalid_request_error", "invalid_value")
            text = f"{error.detail}: {error.__cause__}" if error.__cause__ else str(error.detail)
            error = Refused(text, fault)
    request.state.request_context.refusal = fault_of(error).code
    return error_response(error)


def _methods(request: Request) -> list[str]:
    """The methods that some route takes for the path of this request."""
    routes: list[BaseRoute] = request.app.routes
    scopes = [{**request.scope, "method": method} for method in _METHODS]
    full = Match.FULL
    return [it["method"] for it in scopes if any(route.matches(it)[0] is full for route in routes)]


def _suggestion(request: Request) -> str:
    """A suggestion: the route with the most similar path; "" if none is similar."""
    path = request.url.path.rstrip("/")[:_MOST_CHARS]
    known: dict[str, set[str]] = request.app.state.paths
    paths = [it for it, methods in known.items() if "{" not in it and request.method in methods]
    versions = (f"/v1{path}", path.removeprefix("/v1"))
    near = next((it for it in versions if it in paths), None)
    return f"; did you mean {near}?" if near else did_you_mean(path, paths, 0.8)


@contextlib.asynccontextmanager
async def _with_threads(app: FastAPI) -> AsyncIterator[None]:
    with ThreadPoolExecutor(_NUM_THREADS, "forkroot-http") as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        yield
        if isinstance(app.state.relays, RelayHost):
            app.state.relays.end_relays()
