"""Routes whose endpoint takes one JSON body: found, read and validated without FastAPI's overhead.

Their responses and errors are FastAPI's own; both ways differ in time only.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar, get_origin, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from ....core.api.protocol import ForkrootError, InvalidCall, Shown
from ..server.errors import Refused
from ..server.runtime import Limits, Runtime
from ..server.structure import is_json
from ..server.workers import Workers
from .unknown import HEADER, Unknown, header_of, ignored_keywords

REPORTED_ERRORS = (ForkrootError, Refused, RequestValidationError, HTTPException)
T = TypeVar("T")
_MISSING = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}


class BodyRoute(APIRoute):
    """A route whose first parameter is what the body must fit; a second one may be the request. Any
    other route is one of FastAPI's own.

    answer: what answers a request; None for other routes. Raises RequestValidationError for a body
      that does not fit, and HTTPException for one that cannot be read at all.
    limits, workers: of the server.
    """

    answer: Callable[[Request], Coroutine[Any, Any, Response]] | None = None
    limits = Limits()
    workers = Workers()

    @classmethod
    def of(cls, runtime: Runtime) -> type[BodyRoute]:
        """Such routes with the limits and threads of a server."""
        own = {"limits": runtime.limits, "workers": runtime.workers}
        return type(cls.__name__, (cls,), own)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As in FastAPI."""
        endpoint = self.endpoint
        kinds = [it for name, it in get_type_hints(endpoint).items() if name != "return"]
        if not kinds or not _is_body(kinds[0]):
            return super().get_route_handler()
        reader = BodyReader(self.path, kinds[0], self.limits)

        async def answer(request: Request) -> Response:
            body, kind = await request.body(), request.headers.get("content-type", "")
            read = partial(reader.read, body, kind)
            given, fitting, ignored = await self.workers.run(len(body), read)
            response: Response = await endpoint(*(fitting, request)[: len(kinds)])
            keywords = ignored_keywords(given) if isinstance(given, dict) else []
            if ignored or keywords:
                response.headers[HEADER] = header_of(ignored, keywords)
            return response

        self.answer = answer
        return answer


class BodyReader:
    """Reads the bodies of one route. kind: what they must fit, which stops at the first error."""

    def __init__(self, path: str, kind: Any, limits: Limits) -> None:
        self._adapter = TypeAdapter(kind)
        self._limits = limits
        is_open = get_origin(kind) is dict or kind.model_config.get("extra") == "allow"
        fields = [] if is_open else kind.model_fields.items()
        known = [info.alias or name for name, info in fields]
        self._unknown = None if is_open else Unknown(path, known)

    def read(self, body: bytes, content_type: str) -> tuple[Any, Any, list[str]]:
        """The body's JSON, what it fits, and its ignored fields. Raises as `BodyRoute`, and Refused
        or InvalidCall for a field that is refused by its name or number."""
        given = _read(body, content_type)
        if isinstance(given, dict):
            self._check_sizes(given)
        ignored = [] if self._unknown is None else self._unknown.ignored(given)
        return given, _checked(self._adapter, given), ignored

    def _check_sizes(self, given: dict[str, Any]) -> None:
        most = self._limits.max_fields
        if len(given) > most:
            raise InvalidCall("body", Shown(f"{len(given)} fields"), f"at most {most} fields")
        most = self._limits.max_objects
        for name, value in given.items():
            if isinstance(value, list) and len(value) > most and isinstance(value[0], dict):
                found = Shown(f"{len(value)} objects")
                raise InvalidCall(f"{name:.100}", found, f"at most {most} objects")


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
        readers = [it for it in routes if it.answer is not None]
        self._routes = {(method, it.path): it for it in readers for method in it.methods or ()}
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None or route.answer is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            response = await route.answer(request)
        except REPORTED_ERRORS as error:
            response = await self._on_error(request, error)
        await response(scope, receive, send)


def _is_body(kind: Any) -> bool:
    """Whether a parameter of this type is a body."""
    return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel))


def _read(body: bytes, content_type: str) -> Any:
    """The body's JSON; its bytes where its content type is not JSON."""
    if not body:
        raise RequestValidationError([_MISSING])
    if not is_json(content_type):
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


async def prepared(runtime: Runtime, request: Request, action: Callable[[], T]) -> T:
    """The result of an action that prepares a request: in a thread if its body is large."""
    return await runtime.workers.run(len(await request.body()), action)
