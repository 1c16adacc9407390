"""What the backend has evicted and what it caches, for routers, which are admins; and what programs
have used, for everybody.

A client with a part of the cache of its own reads of that part alone, and a client that is no admin
of its own programs alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import APIRouter, Request

from ....core.api.evictions import Eviction, Prefix
from ....core.api.program_report import ProgramReport
from ..server.errors import Fault, Refused
from ..server.keys import within
from ..server.runtime import Runtime
from ..wire.callwire import EVICTIONS_PATH, PREFIXES_PATH, REPORT_PATH, plain
from .calls import owner_of

T = TypeVar("T", Eviction, Prefix)


def routes(runtime: Runtime) -> APIRouter:
    """The routes of reports. `runtime`: with the backend itself."""
    router = APIRouter(tags=["forkroot"])

    @router.get(EVICTIONS_PATH)
    async def evictions(request: Request, after: int = -1) -> dict[str, Any]:
        """What was evicted since an earlier report; for routers."""
        report = await asyncio.to_thread(_reader(runtime.backend, request, "evictions"), after)
        space = request.state.request_context.client.namespace
        shown: dict[str, Any] = plain(replace(report, evictions=_own(report.evictions, space)))
        return shown

    @router.get(PREFIXES_PATH)
    async def cached(request: Request) -> dict[str, Any]:
        """The cached prefixes that were used last, as digests; for routers."""
        report = await asyncio.to_thread(_reader(runtime.backend, request, "prefixes"))
        space = request.state.request_context.client.namespace
        shown: dict[str, Any] = plain(replace(report, prefixes=_own(report.prefixes, space)))
        return shown

    @router.get(REPORT_PATH)
    async def programs(request: Request, tenant: str | None = None) -> dict[str, Any]:
        """What programs used and what caching saved them, by kind."""
        client = request.state.request_context.client
        read = _method(runtime.backend, "program_report", "what programs have used")
        if not client.is_admin:
            tenant = owner_of(request)
        report: ProgramReport = await asyncio.to_thread(read, tenant)
        if not client.is_admin:  # what a router's replicas count for nobody is not this client's
            own = [replace(it, tenant=None) for it in report.kinds if it.tenant == tenant]
            report = replace(report, kinds=tuple(own))
        shown: dict[str, Any] = plain(report)
        return shown

    return router


def _reader(backend: Any, request: Request, name: str) -> Callable[..., Any]:
    """What reads a report of the backend, for routers, which are admins."""
    if not request.state.request_context.client.is_admin:
        message = "this route needs an admin key, sent as 'Authorization: Bearer KEY'"
        raise Refused(message, Fault(403, "permission_error", "admin_key_required"))
    return _method(backend, name, "what it caches")


def _method(backend: Any, name: str, what: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = getattr(backend, name, None)
    if found is None:
        message = f"the backend of this server does not report {what}"
        raise Refused(message, Fault(404, "invalid_request_error", "no_reports"))
    return found


def _own(entries: Sequence[T], space: str) -> tuple[T, ...]:
    """Those of a client's own part of the cache, by the names that the client gives."""
    if not space:
        return tuple(entries)
    start = within(space, "")
    return tuple(
        replace(it, namespace=it.namespace[len(start) :])
        for it in entries
        if it.namespace.startswith(start)
    )
