"""Routes whose endpoint takes one JSON body: found, read and validated without FastAPI's overhead.

Their responses and errors are FastAPI's own; both ways differ in time only.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeGuard, TypeVar, get_origin, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from ....core.api.protocol import ForkrootError, InvalidCall, Shown
from ..server.errors import Refused
from ..server.large_json import parsed
from ..server.runtime import Limits, Runtime
from ..server.structure import is_json, outline
from ..server.texts import check_body, check_given, has_sign
from ..server.workers import SMALL, Pace, Workers
from ..wire.callwire import PATH
from .unknown import HEADER, Unknown, header_of, ignored_keywords

REPORTED_ERRORS = (ForkrootError, Refused, RequestValidationError, HTTPException)
T = TypeVar("T")
_MISSING = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}


class BodyRoute(APIRoute):
    """A route whose first parameter is what the body must fit; a second one may be the request. Any
    other route is one of FastAPI's own.

    answer: what answers a request; None for other routes. Raises RequestValidationError for a body
      that does not fit, and HTTPException for one that cannot be read at all.
    reader: of its bodies, likewise. limits, workers: of the server.
    """

    answer: Callable[[Request], Coroutine[Any, Any, Response]] | None = None
    reader: BodyReader | None = None
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
        reader = self.reader = BodyReader(self.path, kinds[0], self.limits)

        async def answer(request: Request) -> Response:
            body, kind = await request.body(), request.headers.get("content-type", "")
            read = partial(reader.read, body, kind)
            fitting, ignored = await self.workers.run(len(body), read)
            response: Response = await endpoint(*(fitting, request)[: len(kinds)])
            if ignored:
                response.headers[HEADER] = ignored
            return response

        self.answer = answer
        return answer


def is_reader(route: object) -> TypeGuard[BodyRoute]:
    """Whether a route reads its bodies itself."""
    return isinstance(route, BodyRoute) and route.answer is not None


class BodyReader:
    """Reads the bodies of one route. kind: what they must fit, which stops at the first error."""

    def __init__(self, path: str, kind: Any, limits: Limits) -> None:
        self._adapter = TypeAdapter(kind)
        self._limits = limits
        self._has_texts = path != PATH  # this route checks its calls itself
        is_open = get_origin(kind) is dict or kind.model_config.get("extra") == "allow"
        fields = [] if is_open else kind.model_fields.items()
        known = [info.alias or name for name, info in fields]
        self._unknown = None if is_open else Unknown(path, known)

    def read(self, body: bytes, content_type: str) -> tuple[Any, str]:
        """What a body's JSON fits, and the header that names its ignored fields. Raises as
        `BodyRoute`, and Refused or InvalidCall for a field that is refused by its name or number,
        and for a lone surrogate."""
        given = self.given(body, content_type)
        ignored = [] if self._unknown is None else self._unknown.ignored(given)
        fitting = _checked(self._adapter, given)
        keywords = ignored_keywords(given) if isinstance(given, dict) else []
        return fitting, header_of(ignored, keywords)

    def given(self, body: bytes, content_type: str) -> Any:
        """The body's JSON; its bytes where its content type is not JSON. Raises as `read`."""
        if not body:
            raise RequestValidationError([_MISSING])
        if not is_json(content_type):
            return body
        try:
            return self._parsed(body) if len(body) <= SMALL else self._parsed_in_pieces(body)
        except InvalidCall:
            raise
        except json.JSONDecodeError as error:
            place = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error"}
            raise RequestValidationError([{**place, "ctx": {"error": error.msg}}]) from error
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, "There was an error parsing the body") from error

    def _check_num_fields(self, found: int) -> None:
        most = self._limits.max_fields
        if found > most:
            raise InvalidCall("body", Shown(f"{found} fields"), f"at most {most} fields")

    def _parsed(self, body: bytes) -> Any:
        if self._has_texts:
            check_body(body)
        given = json.loads(body)
        if isinstance(given, dict):
            self._check_num_fields(len(given))
        return given

    def _parsed_in_pieces(self, body: bytes) -> Any:
        rest = Pace().rest
        found = outline(body, self._limits, rest)
        self._check_num_fields(found.num_fields)
        most = self._limits.max_objects
        for it in found.fields():
            if it.num_items > most and it.start == b"[{":
                shown = Shown(f"{it.num_items} objects")
                raise InvalidCall(f"{it.name:.100}", shown, f"at most {most} objects")
        given = parsed(found, rest)
        if self._has_texts and has_sign(found.body):
            check_given(given)
        return given


class BodyRoutes:
    """Finds routes that read their bodies themselves."""

    def __init__(self, routes: Iterable[object]) -> None:
        pairs = [(method, it) for it in filter(is_reader, routes) for method in it.methods or ()]
        self._fixed = {(method, it.path): it for method, it in pairs if not it.param_convertors}
        self._others = [(method, it) for method, it in pairs if it.param_convertors]

    def find(self, method: str, path: str) -> tuple[BodyRoute, dict[str, Any]] | None:
        """The route of a request, and the parameters in its path."""
        if (fixed := self._fixed.get((method, path))) is not None:
            return fixed, {}
        for of_route, route in self._others:
            if of_route == method and (match := route.path_regex.match(path)):
                convertors = route.param_convertors
                return route, {
                    name: convertors[name].convert(value)
                    for name, value in match.groupdict().items()
                }
        return None


class FastPath:
    """ASGI middleware, the innermost: answers requests of these routes; all others go on to the
    router. on_error: makes a response of one of `REPORTED_ERRORS`."""

    def __init__(
        self,
        app: ASGIApp,
        routes: BodyRoutes,
        on_error: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self.app = app
        self._routes = routes
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._routes.find(scope.get("method", ""), scope.get("path", ""))
        answer = None if found is None else found[0].answer
        if found is None or answer is None:
            await self.app(scope, receive, send)
            return
        scope["route"], scope["path_params"] = found
        request = Request(scope, receive)
        try:
            response = await answer(request)
        except REPORTED_ERRORS as error:
            response = await self._on_error(request, error)
        await response(scope, receive, send)


def _is_body(kind: Any) -> bool:
    """Whether a parameter of this type is a body."""
    return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel))


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
