"""The application: every route behind one gate.

It knows which rooms there are, and nothing of what they do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from ...core.common.suggestions import did_you_mean
from ..registry import registry
from .forkroot import calls, operation, page, prefixes
from .openai import chat, completions, models, responses, tokens
from .requests.bodies import BodyRoute
from .requests.misfits import misfit
from .requests.straight import TOLD, Straight
from .server.desk import Desk
from .server.errors import Fault, Refused, error_response, fault_of
from .server.gate import Gate
from .server.keys import Keys
from .server.metrics import Metrics
from .server.runtime import Elsewhere, Runtime
from .server.settings import Settings
from .server.texts import CheckedTexts
from .sglang import routes as sglang

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_MOST_CHARS = 100  # of a path that is compared with those of routes
_NUM_THREADS = 32  # in which calls are tokenized and compiled


def build_app(runtime: Runtime, settings: Settings | None = None) -> FastAPI:
    """The server of one model. `settings`: who may use it; None: everybody."""
    settings = settings or Settings()
    metrics = Metrics(runtime.backend)
    desk = Desk(runtime.backend, metrics, runtime.limits.deadline)
    passes_on = isinstance(runtime.backend, Elsewhere)
    texts = CheckedTexts(runtime.texts)
    served = replace(runtime, backend=desk, texts=texts, passes_on=passes_on)
    app = FastAPI(title="forkroot", lifespan=_with_threads, docs_url=None, redoc_url=None)
    app.state.desk = desk
    quick = [room.routes(served) for room in (chat, completions, responses)]
    quick.append(tokens.routes(served, settings))
    routers = [*quick, *(room.routes(served) for room in (sglang, calls, models, prefixes))]
    routers += [operation.routes(served, desk, metrics), page.routes(runtime)]
    for router in routers:
        app.include_router(router)
    app.state.paths = defaultdict(set)
    for path, methods in (pair for it in routers for pair in map(_path_of, it.routes)):
        app.state.paths[path] |= methods
    bodies = [it for router in quick for it in router.routes if isinstance(it, BodyRoute)]
    app.add_middleware(Straight, routes=bodies, tell=_tell)
    registry().add_routes(app, served)
    registry().started(runtime.backend)
    app.add_middleware(Gate, desk=desk, keys=Keys(settings), metrics=metrics, limits=runtime.limits)
    for kind in TOLD:
        app.add_exception_handler(kind, _tell)
    return app


async def _tell(request: Request, error: Exception) -> Response:
    """An error in OpenAI's shape."""
    match error:
        case RequestValidationError():
            content_type = request.headers.get("content-type")
            error = misfit(error.errors(), error.body, _body_kind(request), content_type)
        case HTTPException(status_code=404):
            text = f"{request.method} {request.url.path} is no route of this server"
            text += _meant(request)
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
    request.state.ticket.refusal = fault_of(error).code
    return error_response(error)


def _body_kind(request: Request) -> Any:
    """What the body of this request should be."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return Any if field is None else field.field_info.annotation


def _methods(request: Request) -> list[str]:
    """The methods that some route takes for the path of this request."""
    routes: list[BaseRoute] = request.app.routes
    asked = [(method, {**request.scope, "method": method}) for method in _METHODS]
    return [it for it, scope in asked if any(_takes(route, scope) for route in routes)]


def _takes(route: BaseRoute, scope: Scope) -> bool:
    return route.matches(scope)[0] is Match.FULL


def _path_of(route: BaseRoute) -> tuple[str, set[str]]:
    """The path of a route, and its methods."""
    return (route.path, route.methods or set()) if isinstance(route, Route) else ("", set())


def _meant(request: Request) -> str:
    """A question after the route that was probably meant; nothing where none is near."""
    asked = request.url.path.rstrip("/")[:_MOST_CHARS]
    known: dict[str, set[str]] = request.app.state.paths
    paths = [it for it, methods in known.items() if "{" not in it and request.method in methods]
    versions = (f"/v1{asked}", asked.removeprefix("/v1"))
    near = next((it for it in versions if it in paths), None)
    return f"; did you mean {near}?" if near else did_you_mean(asked, paths, 0.8)


@contextlib.asynccontextmanager
async def _with_threads(app: FastAPI) -> AsyncIterator[None]:
    with ThreadPoolExecutor(_NUM_THREADS, "forkroot-http") as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        yield
