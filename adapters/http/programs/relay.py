"""A run that goes on to another server as a whole, where the served backend is a router
over servers: what that reports is handed on as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

from ....core.api.protocol import Call, Completion, ForkrootError, ProgramError, Usage
from ....core.api.reply import Mailbox
from ...programs import ProgramHost, ProgramRequest
from ..server.request_registry import RequestContext
from ..server.sse import Event, Final, encode
from .running import Failed, error_report


class RelayedRun:
    """One run on the served backend. It is a `ProgramReceiver`, whose methods are called in a
    thread of the backend, and made in the event loop that reads it.

    reply: the run as a call of its request, by which it is cancelled and its tokens are counted.
    """

    def __init__(self, host: ProgramHost, request: ProgramRequest, context: RequestContext) -> None:
        self.context = context
        self.reply = Mailbox(Call(()), lambda _: self._cancel())
        self._host, self._request = host, request
        self._loop = asyncio.get_running_loop()
        self._queue = asyncio.Queue[bytes | Failed]()
        self._cancel_there: Any = lambda: None

    def start(self) -> None:
        """Begin; may take some time, as its opening is tokenized."""
        self._cancel_there = self._host.run_program(self._request, self)
        if self.context.is_disconnected:  # meanwhile
            self._cancel()

    def abort(self, error: BaseException) -> None:
        """End it early."""
        self._cancel()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The pieces of its body. Raises Failed in place of the last one."""
        await asyncio.to_thread(self.start)
        while True:
            piece = await self._queue.get()
            if isinstance(piece, Failed):
                raise piece
            yield piece
            if isinstance(piece, Final):
                return

    def take(self, event: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.take`."""
        self._put(encode([event]))

    def end(self, state: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.end`."""
        self._put(Final(encode([{"done": state}])))
        self.reply.finish(Completion((), _usage(state)))

    def fail(self, error: ForkrootError, report: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.fail`. What else is known of it goes on, too."""
        if self.context.is_disconnected:
            error = ProgramError("the run was aborted")
        known = {name: report[name] for name in ("state", "notes", "unset") if name in report}
        event: Event = {**error_report(error, None), **known}
        self._put(Failed(error, event))
        self.reply.fail(error)

    def _put(self, piece: bytes | Failed) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody reads it
            self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    def _cancel(self) -> None:
        self._cancel_there()


def _usage(state: Mapping[str, Any]) -> Usage:
    """What the calls of a run used together."""
    totals = state.get("totals")
    if not isinstance(totals, Mapping):
        return Usage()
    names = ("prompt_tokens", "cached_tokens", "completion_tokens")
    return Usage(**{it: int(totals[it]) for it in names if isinstance(totals.get(it), int)})
