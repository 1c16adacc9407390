"""A fast path for JSON bodies: calls hot routes directly, without FastAPI's routing.

Routes with a fixed path and one JSON body are found by their path. All other requests go on to the
router. Both ways give the same responses; they differ in time only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from ....core.api.protocol import ForkrootError
from ..server.errors import Refused
from .bodies import BodyRoute

REPORTED_ERRORS = (ForkrootError, Refused, RequestValidationError, HTTPException)


class FastPath:
    """ASGI middleware, the innermost. on_error: makes a response of one of `REPORTED_ERRORS`."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Iterable[BodyRoute],
        on_error: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self.app = app
        self._routes = {(method, it.path): it for it in routes for method in it.methods or ()}
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            response = await route.answer(request)
        except REPORTED_ERRORS as error:
            response = await self._on_error(request, error)
        await response(scope, receive, send)
