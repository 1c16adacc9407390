"""Pages for browsers: the radix tree live with the server's figures, what programs saved, and the
routes (`/docs`).

Its files are for everybody; `/live`, their data, is for admins only, as the tree's labels are
texts of all clients' prompts. It knows the protocol only: a backend without a tree shows its
figures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ....core.api.media import with_pictures
from ....core.api.program_report import KindUsage
from ....core.api.protocol import ForkrootError, NodeView
from ..server.errors import Fault, Refused
from ..server.runtime import Runtime

_FOLDER = Path(__file__).parent / "static"
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/docs": ("docs.html", "text/html"),
    "/docs.css": ("docs.css", "text/css"),
    "/docs.js": ("docs.js", "text/javascript"),
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_MAX_NODES = 300
_MAX_PROGRAMS = 12
_LABEL_TOKENS = 64
_SECONDS_FRESH = 0.4
_SECONDS_WATCHED = 5.0


def routes(runtime: Runtime) -> APIRouter:
    """The page, its files, and their data. `runtime`: with the backend itself."""
    router = APIRouter()
    live_snapshot = LiveSnapshot(runtime)
    for path, (name, kind) in _FILES.items():
        router.add_api_route(path, _sender(name, kind), include_in_schema=False)

    @router.get("/live")
    async def live(request: Request) -> Response:
        """What the live page shows, as server-sent events. For admins."""
        if not request.state.request_context.client.is_admin:
            raise _refused("authorization" in request.headers)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(await live_snapshot.now(), headers=headers, media_type="application/json")

    return router


def _refused(has_key: bool) -> Refused:
    message = "this route needs an admin key, sent as 'Authorization: Bearer KEY'"
    if has_key:
        return Refused(message, Fault(403, "permission_error", "admin_key_required"))
    return Refused(message, Fault(401, "authentication_error", "invalid_api_key"))


def _sender(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    body = (_FOLDER / name).read_bytes()

    async def send() -> Response:
        return Response(body, headers=_HEADERS, media_type=kind)

    return send


class LiveSnapshot:
    """The data of the page, as JSON. Concurrent requests share one snapshot of the backend, so that
    many viewers cost no more than one."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._uses = Uses()
        self._pending: asyncio.Future[bytes] | None = None
        self._computed_at = 0.0

    async def now(self) -> bytes:
        """The current snapshot. Raises BackendClosed."""
        pending = self._pending
        is_old = time.monotonic() - self._computed_at >= _SECONDS_FRESH
        if pending is None or (
            pending.done() and (is_old or pending.cancelled() or pending.exception() is not None)
        ):
            pending = self._pending = asyncio.ensure_future(asyncio.to_thread(self._compute))
        return await asyncio.shield(pending)

    def _compute(self) -> bytes:
        backend = self._runtime.backend
        info = backend.info()
        picture = getattr(backend, "snapshot", None)  # which not every backend has
        views = None if picture is None else picture(_MAX_NODES, _LABEL_TOKENS)
        now = self._computed_at = time.monotonic()
        snapshot = {
            "time": now,
            "model": self._runtime.name,
            "counters": dict(info.counters),
            "load": dict(info.load),
            "nodes": None if views is None else list(self._nodes(views, now)),
            "programs": _programs(backend),
        }
        return json.dumps(snapshot).encode()

    def _nodes(self, views: Sequence[NodeView], now: float) -> Iterator[dict[str, Any]]:
        """tokens: of its edge, of which `text` may be the beginning. sharers: calls, and pinned
        roots, that hold it now. idle: seconds since it was in use; None: before it was watched."""
        texts, ends = self._runtime.texts, {view.id: view.end for view in views}
        idle = self._uses.idle(views, now)
        for view in views:
            num_tokens = view.end - ends.get(view.parent, 0)
            rest = "…" if len(view.tokens) < num_tokens else ""
            seconds = idle[view.id]
            yield {
                "id": view.id,
                "parent": view.parent,
                "namespace": view.namespace,
                "text": with_pictures(texts.decode, view.tokens, len(texts.token_bytes)) + rest,
                "tokens": num_tokens,
                "end": view.end,
                "sharers": view.lock_count,
                "hits": view.hits,
                "idle": None if seconds is None else round(seconds, 1),
                "children": view.children,
                "hidden": view.num_hidden,
            }


def _programs(backend: Any) -> list[dict[str, Any]]:
    """The kinds of programs that saved most, as far as the backend reports them."""
    report = getattr(backend, "program_report", None)
    if report is None:
        return []
    try:
        kinds: Sequence[KindUsage] = report().kinds[:_MAX_PROGRAMS]
    except ForkrootError:  # an older server, which has no such report
        return []
    return [{**asdict(it), "guesses": asdict(it.guesses)} for it in kinds]


class Uses:
    """When nodes were last in use. A tree's clock counts uses; how long ago these were is known of
    those that came while it was watched."""

    def __init__(self) -> None:
        self._uses: dict[int, tuple[int, float | None]] = {}  # by the tree's clock, and in seconds
        self._newest = 0
        self._looked_at: float | None = None

    def idle(self, views: Sequence[NodeView], now: float) -> dict[int, float | None]:
        """Seconds since each node was in use; None for times when it was not watched."""
        last = self._looked_at
        is_watched = last is not None and now - last <= _SECONDS_WATCHED
        uses: dict[int, tuple[int, float | None]] = {}
        for view in views:
            tick, seconds = self._uses.get(view.id, (None, None))
            if view.lock_count or (is_watched and view.last_used > self._newest):
                seconds = now
            elif tick != view.last_used:
                seconds = None
            uses[view.id] = view.last_used, seconds
        self._uses = uses
        self._newest = max((view.last_used for view in views), default=self._newest)
        self._looked_at = now
        return {id: None if used is None else now - used for id, (_, used) in uses.items()}
