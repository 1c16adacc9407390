"""One run of a program on its way to a server, and what it reports on its way back.

A program's graph is sent before its first run, and again where the server does not know it (any
more): once for all runs that wait for it. It lives in one event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from ...core.api.protocol import BackendClosed, CallFailed, ForkrootError
from ..programs import ProgramReceiver, ProgramRequest
from .client_exchange import STALE, EventReader, failure_of, refused, sent_request
from .lines import Lines
from .wire.callwire import PROGRAMS_PATH, UNKNOWN_PROGRAM, error_of

_MOST_SENT = 3  # times that a run sends its program: a server may forget it at once for others
_HEADERS = {"Content-Type": "application/json"}


class SentPrograms:
    """Which programs a server has got."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def send(self, http: httpx.AsyncClient, request: ProgramRequest) -> asyncio.Task[None]:
        """Send a program that was not sent, and wait until the server has it. Raises as
        `refused`."""
        key = request.namespace, request.digest
        task = self._tasks.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._tasks[key] = asyncio.create_task(_put(http, request))
        await asyncio.shield(task)
        return task

    def forget(self, request: ProgramRequest, sent: asyncio.Task[None]) -> None:
        """The server did not know what was sent by then."""
        key = request.namespace, request.digest
        if self._tasks.get(key) is sent:
            del self._tasks[key]


class ProgramExchange:
    """A run and its report. http: the client of the server; sent: what the server has got. lines:
    in place of `http` for the run, where they can be used."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        request: ProgramRequest,
        receiver: ProgramReceiver,
        sent: SentPrograms,
        lines: Lines | None = None,
    ) -> None:
        self._http, self._lines = http, lines
        self._request = request
        self._receiver = receiver
        self._sent = sent
        self._is_over = False
        self._has_started = False
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(lambda _: self._fail(BackendClosed.meanwhile()))

    def cancel(self) -> None:
        """End the run early: its connection is closed, by which the server ends it."""
        self.task.cancel()

    async def _run(self) -> None:
        try:
            for _ in range(_MOST_SENT):
                sent = await self._sent.send(self._http, self._request)
                if await sent_request(self._ask_once, lambda: self._has_started):
                    self._fail(BackendClosed("the server ended its report before the end"))
                    return
                self._sent.forget(self._request, sent)
            self._fail(CallFailed("the server forgets the program as soon as it was sent"))
        except Exception as error:
            self._fail(failure_of(error, self._http.base_url))

    async def _ask_once(self) -> bool:
        """Ask for the run and take its report; whether the server knows the program."""
        path, body = f"{PROGRAMS_PATH}/{self._request.digest}/run", self._request.body
        if self._lines is None:
            return await self._ask_by_httpx(path, body)
        response = await self._lines.post(path, body, EventReader(self._take), self._note_start)
        return response is None or self._is_refused(response, response.content)

    async def _ask_by_httpx(self, path: str, body: bytes) -> bool:
        async with self._http.stream("POST", path, content=body, headers=_HEADERS) as response:
            self._note_start()
            if response.status_code != httpx.codes.OK:
                return self._is_refused(response, await response.aread())
            take = EventReader(self._take)
            async for piece in response.aiter_bytes():
                take(piece)
        return True

    def _note_start(self) -> None:
        self._has_started = True

    def _is_refused(self, response: httpx.Response, data: bytes) -> bool:
        """Fail with what the server says; False where it only does not know the program."""
        report = _report(data)
        if _code(report) == UNKNOWN_PROGRAM:
            return False
        self._fail(refused(self._http.base_url, response, data), report)
        return True

    def _take(self, event: dict[str, Any]) -> None:
        if "done" in event:
            self._is_over = True
            self._receiver.end(event["done"])
        elif "forkroot" in event:
            self._fail(error_of(event["forkroot"]), event)
        else:
            self._receiver.take(event)

    def _fail(self, error: ForkrootError, report: Mapping[str, Any] | None = None) -> None:
        if not self._is_over:
            self._is_over = True
            self._receiver.fail(error, report or {})


async def _put(http: httpx.AsyncClient, request: ProgramRequest) -> None:
    path, query = f"{PROGRAMS_PATH}/{request.digest}", {}
    if request.namespace:
        query = {"namespace": request.namespace}
    for is_last in (False, True):
        try:
            response = await http.put(path, params=query, content=request.graph, headers=_HEADERS)
            break
        except STALE:  # sending it twice changes nothing
            if is_last:
                raise
    if response.status_code != httpx.codes.OK:
        raise refused(http.base_url, response, response.content)


def _report(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(report: Mapping[str, Any]) -> Any:
    error = report.get("error")
    return error.get("code") if isinstance(error, Mapping) else None
