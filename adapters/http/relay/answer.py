"""The answer to one relayed request, from a backend's pieces to its client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import Send

from ....core.api.protocol import BackendClosed, Call, Completion
from ....core.api.reply import Mailbox
from ...relays import Flow
from ..server.errors import failed_body
from ..server.metrics import Metrics
from ..server.request_registry import RequestContext
from ..server.sse import encode

_MOST_BYTES = 1 << 18  # that wait for the client before no more are taken


class RelayedAnswer:
    """A `RelayReceiver` whose answer is sent as it comes. All of it lives in one event loop.

    reply: the request as one call, which is counted, and by which it is ended.
    """

    def __init__(self, call: Call, context: RequestContext, metrics: Metrics, flow: Flow) -> None:
        self.reply = Mailbox(call, lambda _: self._cancel())
        self.cancel_there: Callable[[], object] = lambda: None
        self._context, self._metrics, self._flow = context, metrics, flow
        self._loop = asyncio.get_running_loop()
        self._last = self._start = time.perf_counter()
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._num_waiting = 0
        self._is_over, self._is_read = False, True
        self._error: BaseException | None = None
        self._woken: asyncio.Future[None] | None = None
        self._write: Callable[[bytes], bool] | None = None

    async def send_to(self, send: Send, write: Callable[[bytes], bool] | None) -> None:
        """Send all of it. write: sends a piece at once if it can. Raises the error of a request
        that nothing was sent of."""
        while not (self._pieces or self._is_over):
            await self._wait()
        if not self._status and self._error is not None:
            raise self._error
        start = {"type": "http.response.start", "status": self._status, "headers": self._headers}
        await send(start)
        while not self._is_over:
            if not self._pieces:
                self._write = write
                await self._wait()
                self._write = None  # what comes now comes behind what waits
                continue
            await send({"type": "http.response.body", "body": self._taken(), "more_body": True})
        rest = self._taken() + (b"" if self._error is None else self._last_event(self._error))
        await send({"type": "http.response.body", "body": rest, "more_body": False})

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """As `RelayReceiver.begin`."""
        self._status = status
        self._headers = [(name.encode(), it.encode("latin-1")) for name, it in headers.items()]

    def close(self) -> None:
        """Nobody reads it any more: it is ended early where it has not ended."""
        self._is_read = False
        self.reply.cancel()
        self._taken()

    def take(self, piece: bytes) -> None:
        """As `RelayReceiver.take`."""
        if not self._is_read:
            return
        now = time.perf_counter()
        if self.reply.call.stream:
            is_first = self._last == self._start
            metric = self._metrics.first_token if is_first else self._metrics.next_token
            metric.observe(now - self._last)
        self._last = now
        if self._write is not None and not self._pieces and self._write(piece):
            return
        self._pieces.append(piece)
        self._num_waiting += len(piece)
        if self._num_waiting > _MOST_BYTES:
            self._flow.is_full = True
        self._wake()

    def end(self, completion: Completion | None) -> None:
        """As `RelayReceiver.end`."""
        if not self.reply.call.stream:
            length = sum(map(len, self._pieces))
            self._headers.append((b"content-length", b"%d" % length))
        self._is_over = True
        self.reply.finish(completion or Completion())
        self._wake()

    def fail(self, error: BaseException) -> None:
        """As `RelayReceiver.fail`."""
        if self._is_over:
            return
        self._is_over, self._error = True, error
        self.reply.fail(error)
        self._wake()

    def _taken(self) -> bytes:
        """What has come and was not sent."""
        pieces, self._pieces, self._num_waiting = self._pieces, [], 0
        if self._flow.is_full:
            self._flow.open()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _wait(self) -> None:
        self._woken = self._loop.create_future()
        await self._woken

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _cancel(self) -> None:
        """From any thread. At shutdown it ends at once, as other requests do."""
        if self._context.is_cut_off:
            error = BackendClosed("the server is shutting down")
            self._loop.call_soon_threadsafe(self.fail, error)
        self.cancel_there()

    def _last_event(self, error: BaseException) -> bytes:
        event: Any = failed_body(error)
        return encode([event])
