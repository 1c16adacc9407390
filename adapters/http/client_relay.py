"""One request on its way to a server as it came, and the answer on its way back, unread but for
what the server reports after it.

Its receiver gets exactly one ending. It lives in the event loop in which it was made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx

from ...core.api.protocol import BackendClosed, Completion
from ..relays import RelayReceiver, RelayRequest
from .client_exchange import failure_of, no_server, refused, sent_request
from .lines import Lines
from .wire.relaywire import CLIENT_HEADER, MARK, PREFIX, REPORT_HEADER, completion_of

_ABORT_PATH = "/abort_request"
_RELAYED_STATUSES = frozenset((400, 408, 413, 422))  # the client's own faults, as the server says
_HEADERS = ("content-type", "cache-control", "x-accel-buffering", "retry-after", "x-ignored-fields")
_KINDS = ("application/json", "text/event-stream")  # of answers
_REPORT = REPORT_HEADER.lower()


class RelayLines:
    """Connections to one server for relayed requests: those of the event loop that asks last.
    Arguments as of `Lines`."""

    def __init__(self, url: httpx.URL, *given: Any) -> None:
        self.url = url
        self._given = url, *given
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines: Lines | None = None
        self.open = set[RelayExchange]()

    def of_loop(self) -> Lines:
        """The connections of the running loop."""
        loop = asyncio.get_running_loop()
        if self._lines is None or self._loop is not loop:
            self._loop, self._lines = loop, Lines(*self._given)
        return self._lines

    def close(self) -> None:
        """End open requests in BackendClosed, and close the connections; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self.end)

    def end(self) -> None:
        """The same, in the event loop."""
        for exchange in list(self.open):
            exchange.task.cancel()
        if self._lines is not None:
            self._lines.close()


class RelayExchange:
    """A request and its answer."""

    def __init__(self, lines: RelayLines, request: RelayRequest, receiver: RelayReceiver) -> None:
        self._lines, self._request, self._receiver = lines, request, receiver
        self._report = b""
        self._has_started = self._is_reporting = self._is_over = False
        self._is_at_start = True  # of a line
        self._aborting: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())
        lines.open.add(self)
        self.task.add_done_callback(self._end)

    def cancel(self) -> None:
        """End it early: the server is asked to, and the rest of its answer is taken."""
        if self._aborting is None and not self.task.done():
            self._aborting = asyncio.create_task(self._abort())

    async def _run(self) -> None:
        try:
            response = await sent_request(self._send_once, lambda: self._has_started)
            if response is None:
                self._over()
                self._receiver.end(completion_of(self._report) if self._report else Completion())
            else:
                self._refuse(response)
        except Exception as error:
            self._fail(failure_of(error, self._lines.url, "relayed"))

    def _end(self, _: object) -> None:
        """The task is over: if it was cancelled, maybe before it ran, this is the end."""
        self._lines.open.discard(self)
        if self._aborting is not None:
            self._aborting.cancel()
        self._fail(BackendClosed.meanwhile())

    async def _send_once(self) -> httpx.Response | None:
        request = self._request
        client = json.dumps(request.client)  # ASCII: no line can end in it
        more = f"{CLIENT_HEADER}: {client}\r\nX-Request-Id: {request.request_id}\r\n"
        given = self._take, self._note_start, self._begin, request.flow, more
        path = PREFIX + request.path
        return await self._lines.of_loop().post(path, request.body, *given)

    def _note_start(self) -> None:
        self._has_started = True

    def _begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_started = True
        found = {name.decode("latin-1").lower(): it.decode("latin-1") for name, it in headers}
        kind = found.get("content-type", "")
        if not kind.startswith(_KINDS):
            raise no_server(self._lines.url, f"it answers with {kind or 'no content-type'}")
        self._report = found.get(_REPORT, "").encode()
        self._receiver.begin(200, _passed_on(found))

    def _take(self, piece: bytes) -> None:
        if self._is_reporting:
            self._report += piece
            return
        at = 0 if self._is_at_start and piece.startswith(MARK) else piece.find(b"\n" + MARK) + 1
        if at > 0 or (self._is_at_start and piece.startswith(MARK)):
            self._is_reporting, self._report = True, piece[at + len(MARK) :]
            piece = piece[:at]
        self._is_at_start = piece.endswith(b"\n")
        if piece:
            self._receiver.take(piece)

    def _refuse(self, response: httpx.Response) -> None:
        """Hand on what is the client's fault as the server says it; the rest is an error."""
        if response.status_code not in _RELAYED_STATUSES:
            self._fail(refused(self._lines.url, response, response.content))
            return
        self._over()
        self._receiver.begin(response.status_code, _passed_on(response.headers))
        self._receiver.take(response.content)
        self._receiver.end(None)

    async def _abort(self) -> None:
        body = json.dumps({"rid": self._request.request_id}).encode()
        taken: Callable[[bytes], object] = bytes
        with suppress(httpx.HTTPError):
            response = await self._lines.of_loop().post(_ABORT_PATH, body, taken, taken_start)
            if response is None:
                return  # the end comes, or has come
        self.task.cancel()

    def _over(self) -> bool:
        is_first, self._is_over = not self._is_over, True
        return is_first

    def _fail(self, error: BaseException) -> None:
        if self._over():
            self._receiver.fail(error)


def taken_start() -> None:
    """An answer that nobody waits for has begun."""


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _HEADERS if name in headers}
