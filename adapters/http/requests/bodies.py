"""Routes whose endpoint takes one JSON body: found, read and validated without FastAPI's overhead.

Their responses and errors are FastAPI's own; both ways differ in time only.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from ....core.api.protocol import ForkrootError
from ..server.errors import Refused
from .unknown import HEADER, Unknown, header_of, ignored_keywords

REPORTED_ERRORS = (ForkrootError, Refused, RequestValidationError, HTTPException)
_MISSING = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}


class BodyRoute(APIRoute):
    """A route with one parameter, a pydantic model that the body must fit.

    answer: what answers a request. Raises RequestValidationError for a body that does not fit, and
      HTTPException for one that cannot be read at all.
    """

    answer: Callable[[Request], Coroutine[Any, Any, Response]]

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As in FastAPI."""
        endpoint = self.endpoint
        (model,) = (it for name, it in get_type_hints(endpoint).items() if name != "return")
        assert issubclass(model, BaseModel)
        adapter = TypeAdapter(model)
        fields = model.model_fields.items()
        unknown = Unknown(self.path, [info.alias or name for name, info in fields])

        async def answer(request: Request) -> Response:
            body = await _read(request)
            ignored = unknown.ignored(body)
            response: Response = await endpoint(_checked(adapter, body))
            keywords = ignored_keywords(body) if isinstance(body, dict) else []
            if ignored or keywords:
                response.headers[HEADER] = header_of(ignored, keywords)
            return response

        self.answer = answer
        return answer


class FastPath:
    """ASGI middleware, the innermost: finds these routes by their path; all other requests go on to
    the router. on_error: makes a response of one of `REPORTED_ERRORS`."""

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


async def _read(request: Request) -> Any:
    """The body's JSON; its bytes where its content type is not JSON."""
    body = await request.body()
    if not body:
        raise RequestValidationError([_MISSING])
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        return body
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error"}
        raise RequestValidationError([{**problem, "ctx": {"error": error.msg}}]) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error


def _checked(adapter: TypeAdapter[Any], given: Any) -> Any:
    try:
        return adapter.validate_python(given, from_attributes=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [{**it, "loc": ("body", *it["loc"])} for it in found]
        raise RequestValidationError(problems, body=given) from error
