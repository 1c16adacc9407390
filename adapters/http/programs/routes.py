"""The routes of programs: `PUT` keeps the graph of one, `POST .../run` runs it with arguments.

A program is known by the SHA-256 of its graph's JSON. Only its own client finds it, under the
namespace that it was sent for, and only while it is kept: who gets `program_not_found` sends it
again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from ....core.api.protocol import CallTooLarge, ForkrootError, InvalidCall, Shown
from ...native import CompiledProgram
from ...native.compiler.graph.graph import Graph
from ...native.remote.requests import RunRequest
from ..forkroot.calls import owner_of, refusal
from ..requests.bodies import BodyRoute, prepared
from ..server.errors import Fault, Refused
from ..server.request_registry import RequestRegistry
from ..server.runtime import ProgramLimits, Runtime
from ..server.sse import EventStream
from ..wire.callwire import PROGRAMS_PATH, UNKNOWN_PROGRAM
from ..wire.wire import Body
from .running import Failed
from .runs import ProgramRuns, StoredProgram
from .store import Key, ProgramStore

_DIGEST = r"[0-9a-f]{64}"
_NAMESPACE = 256  # characters
_DIGEST_PARAMETER = {
    "name": "digest",
    "in": "path",
    "required": True,
    "description": "the SHA-256 of the graph's JSON, in hexadecimal digits",
    "schema": {"type": "string", "pattern": f"^{_DIGEST}$"},
}
_NAMESPACE_PARAMETER = {
    "name": "namespace",
    "in": "query",
    "required": False,
    "description": "the part of the client's programs and cache that the program is for",
    "schema": {"type": "string", "maxLength": _NAMESPACE},
}


class RunBody(Body):
    """What a run is given. All but the arguments may be left out or null.

    arguments: of the program, by name. sampling: fields of `Sampling` for calls that set none.
    hints: announce which prefixes calls share. stream: report texts and variables as they come.
    passes: of the compiler, by name; all if null. tenant, weight: whose run it is, where an admin
    sends it for others.
    """

    model_config = ConfigDict(extra="forbid")

    arguments: dict[str, Any] | None = None
    sampling: dict[str, Any] | None = None
    hints: bool | None = None
    stream: bool | None = None
    scored_from: int | None = Field(None, json_schema_extra={"minimum": 0})
    namespace: str | None = Field(None, json_schema_extra={"maxLength": _NAMESPACE})
    priority: int | None = Field(None, json_schema_extra={"minimum": -100, "maximum": 100})
    deadline: float | None = Field(None, json_schema_extra={"exclusiveMinimum": 0})
    passes: list[str] | None = None
    tenant: str | None = None
    weight: float | None = None


class ProgramReply(BaseModel):
    """A program that is kept."""

    id: str
    object: str = "program"
    name: str
    nodes: int
    parameters: list[str]


class ForgottenReply(BaseModel):
    """A program that is no longer kept."""

    id: str
    object: str = "program"
    deleted: bool = True


def routes(runtime: Runtime, registry: RequestRegistry) -> APIRouter:
    """The routes of programs. registry: what their calls are submitted to."""
    router = APIRouter(tags=["forkroot"], route_class=BodyRoute.of(runtime))
    limits = runtime.limits
    own = limits.programs
    store = ProgramStore[StoredProgram](own.max_kept, own.max_kept_bytes)
    runs = ProgramRuns(registry, limits)
    path = {"parameters": [_DIGEST_PARAMETER]}
    found = {"parameters": [_DIGEST_PARAMETER, _NAMESPACE_PARAMETER]}

    @router.put(PROGRAMS_PATH + "/{digest}", response_model=ProgramReply, openapi_extra=found)
    async def keep(body: dict[str, Any], request: Request) -> Response:
        """Keep a compiled program: the body is its graph, by whose digest it is known."""
        content = await request.body()
        key = _key(request, _namespace(request))
        try:
            kept = await prepared(runtime, request, lambda: _read(content, key.digest, own))
            store.put(key, kept, len(content))
        except ForkrootError as error:
            return refusal(error)
        graph = kept.program.graph
        names = [it.name for it in graph.parameters if not it.is_fixed]
        reply = ProgramReply(
            id=key.digest, name=graph.name, nodes=len(graph.nodes), parameters=names
        )
        return JSONResponse(reply.model_dump())

    @router.post(PROGRAMS_PATH + "/{digest}/run", openapi_extra=path)
    async def run(body: RunBody, request: Request) -> Response:
        """Run a kept program. The last server-sent event of the answer has its state."""
        try:
            asked = RunRequest.from_json(body.model_dump(exclude_none=True))
            key = _key(request, asked.namespace)
            context = request.state.request_context
            body_pieces = await runs.pieces_of(_known(store, key), key, asked, context)
        except ForkrootError as error:
            return refusal(error)
        try:
            first = await anext(body_pieces)
        except Failed as failed:
            return _refused(failed)
        return EventStream(_joined(first, body_pieces))

    @router.delete(PROGRAMS_PATH + "/{digest}", openapi_extra=found)
    async def forget(request: Request) -> ForgottenReply:
        """Keep a program no longer."""
        key = _key(request, _namespace(request))
        if not store.remove(key):
            raise _unknown(key.digest)
        return ForgottenReply(id=key.digest)

    return router


def _read(content: bytes, digest: str, limits: ProgramLimits) -> StoredProgram:
    """The program whose graph this is. Raises InvalidCall."""
    graph = Graph.from_json(content)
    for what, num, most in (
        ("nodes", len(graph.nodes), limits.max_nodes),
        ("streams", len(graph.streams), limits.max_streams),
    ):
        if num > most:
            allowed = f"at most {most} {what} (of this server)"
            raise CallTooLarge("program", Shown(f"{num} {what}"), allowed)
    if graph.digest() != digest:
        allowed = f"the digest of the graph in the body, which is {graph.digest()}"
        raise InvalidCall("digest", digest, allowed)
    return StoredProgram(CompiledProgram(graph), graph.to_json().encode())


def _known(store: ProgramStore[StoredProgram], key: Key) -> StoredProgram:
    kept = store.get(key)
    if kept is None:
        raise _unknown(key.digest)
    return kept


def _unknown(digest: str) -> Refused:
    message = f"no program with the digest {digest!r:.100} is kept; send it by PUT"
    return Refused(message, Fault(404, "invalid_request_error", UNKNOWN_PROGRAM, "digest"))


def _key(request: Request, namespace: str) -> Key:
    digest = str(request.path_params["digest"])
    if not re.fullmatch(_DIGEST, digest):
        raise InvalidCall("digest", digest[:100], "64 hexadecimal digits, in lower case")
    return Key(owner_of(request), namespace, digest)


def _namespace(request: Request) -> str:
    found = request.query_params.get("namespace", "")
    if len(found) > _NAMESPACE:
        raise InvalidCall("namespace", found[:100], f"at most {_NAMESPACE} characters")
    return found


def _refused(failed: Failed) -> Response:
    response = refusal(failed.error)
    headers = {name: value for name, value in response.headers.items() if name == "retry-after"}
    return JSONResponse(failed.event, response.status_code, headers)


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in others:
        yield piece
