"""The shortest way to the routes under load: those of one fixed path that take one JSON body.

They are found by their path alone, and called as they are; all other requests go on to the router.
Nothing tells the two ways apart but the time that they take.
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

TOLD = (ForkrootError, Refused, RequestValidationError, HTTPException)


class Straight:
    """ASGI middleware, the innermost. tell: an error of `TOLD` as a response."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Iterable[BodyRoute],
        tell: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self.app = app
        self._routes = {(method, it.path): it for it in routes for method in it.methods or ()}
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            response = await route.answer(request)
        except TOLD as error:
            response = await self._tell(request, error)
        await response(scope, receive, send)
