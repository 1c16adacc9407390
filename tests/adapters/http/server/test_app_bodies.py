"""Bodies are read by a shorter way than FastAPI's own, which shows in nothing but time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from forkroot.adapters.http.requests.bodies import BodyRoute, BodyRoutes, FastPath
from forkroot.adapters.http.requests.large_answers import Answer


class Part(BaseModel):
    name: str
    sizes: list[int] | None = None


class Thing(BaseModel):
    part: Part
    note: str | list[str] = ""


def app_of(route_class: Any) -> FastAPI:
    app, router = FastAPI(), APIRouter(route_class=route_class)
    app.state.router = router

    @router.post("/things")
    async def things(thing: Thing) -> Answer:
        return Answer(thing.model_dump())

    @router.put("/shelves/{name}/things")
    async def shelf(thing: Thing, request: Request) -> Answer:
        return Answer({**request.path_params, **thing.model_dump()})

    @app.exception_handler(RequestValidationError)
    async def refused(request: Request, error: RequestValidationError) -> JSONResponse:
        response = [
            {key: it.get(key) for key in ("type", "loc", "msg", "ctx")} for it in error.errors()
        ]
        return JSONResponse(json.loads(json.dumps(response, default=str)), 422)

    @app.exception_handler(HTTPException)
    async def failed(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(str(error.detail), error.status_code)

    app.include_router(router)
    return app


BODIES = [
    b'{"part": {"name": "x", "sizes": [1, "2"]}, "note": ["a"], "more": 1}',
    b'{"part": {"name": 1}}',
    b'{"part": {"name": "x", "sizes": [1, "two", null]}, "note": 3}',
    b'{"part": null}',
    b"{}",
    b"[]",
    b'"text"',
    b"",
    b"NaN",
    b"{",
    b'{"part": }',
    b"\xff\xfe",
    b"[" * 9_999,
]
KINDS = [
    "application/json",
    "application/json; charset=utf-8",
    "Application/JSON",
    "application/vnd.own+json",
    "text/plain",
    "application/jsonp",
    "",
]


JSON = {"Content-Type": "application/json"}


async def send(
    app: FastAPI,
    body: bytes,
    headers: dict[str, str],
    method: str = "POST",
    path: str = "/things",
) -> tuple[int, bytes]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        response = await client.request(method, path, content=body, headers=headers)
    return response.status_code, response.content


@pytest.mark.parametrize("kind", KINDS)
def test_every_body_is_answered_as_fastapi_answers_it(kind: str) -> None:
    ours, theirs = app_of(BodyRoute), app_of(APIRoute)
    headers = {"Content-Type": kind} if kind else {}
    for body in BODIES:
        response, wanted = (asyncio.run(send(app, body, headers)) for app in (ours, theirs))
        assert response == wanted, body[:99]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:20]))
def test_the_fast_path_answers_as_the_router_does(body: bytes) -> None:
    routed, fast_path = both_ways(lambda app: send(app, body, JSON))
    assert routed == fast_path


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("name", ["one", "a%20b", "", "a/b", "a%2Fb", "é"])
def test_the_fast_path_finds_parameters_of_a_path_as_the_router_does(
    name: str, method: str
) -> None:
    body, path = b'{"part": {"name": "x"}}', f"/shelves/{name}/things"
    routed, fast_path = both_ways(lambda app: send(app, body, JSON, method, path))
    assert routed == fast_path
    assert (routed[0] == 200) == (method == "PUT" and name in ("one", "a%20b", "é"))


def both_ways(ask: Callable[[FastAPI], Any]) -> list[Any]:
    """What an app answers by the router, and by the fast path before it."""
    apps = [app_of(BodyRoute), app_of(BodyRoute)]
    routes = [it for it in apps[1].state.router.routes if isinstance(it, BodyRoute)]
    assert [it.path for it in routes] == ["/things", "/shelves/{name}/things"]

    async def on_error(request: Request, error: Exception) -> Response:
        response = apps[1].exception_handlers[type(error)](request, error)
        return await response  # type: ignore[no-any-return, misc]

    apps[1].add_middleware(FastPath, routes=BodyRoutes(routes), on_error=on_error)
    return [asyncio.run(ask(app)) for app in apps]


def test_the_shape_of_the_body_is_described() -> None:
    def described(route_class: Any) -> Any:
        return app_of(route_class).openapi()["paths"]["/things"]["post"]["requestBody"]

    assert described(BodyRoute) == described(APIRoute)
