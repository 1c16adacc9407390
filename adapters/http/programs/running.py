"""One run on the server: in a thread of its own, reported as events, ended when nobody reads it.

A body is server-sent events: those of `progress.py` where the run is streamed, and then exactly one
of `{"done": state}` and `{"error": ..., "forkroot": ..., "state": ...}`. While nothing happens a
comment is sent from time to time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ....core.api.protocol import (
    BackendClosed,
    CallFailed,
    DeadlineExceeded,
    ForkrootError,
    InvalidCall,
    Overloaded,
    ProgramError,
)
from ...native import UnsetVariable
from ...native.remote.progress import Progress
from ...native.run import Run
from ..forkroot.calls import COMMENT, error_event
from ..server.errors import fault_of
from ..server.request_registry import RequestContext
from ..server.runtime import ProgramLimits
from ..server.sse import Event, Final, encode
from ..wire.callwire import SILENCE
from .slots import RunSlots

_log = logging.getLogger("forkroot.http")
_NUM_WORKERS = 4  # for the steps that replies set free, of all runs


class Failed(Exception):
    """A run has ended in an error. event: what the answer says of it."""

    def __init__(self, error: ForkrootError, event: Event) -> None:
        super().__init__(error, event)
        self.error = error
        self.event = event


class RunThreads:
    """The threads and the slots of all runs of a server. They start with their first work.

    worker: runs the steps that replies have set free.
    """

    def __init__(self, limits: ProgramLimits) -> None:
        self.limits = limits
        self.slots = RunSlots(limits.max_runs)
        self.worker = ThreadPoolExecutor(_NUM_WORKERS, "forkroot-steps")
        self._threads = ThreadPoolExecutor(limits.max_runs, "forkroot-program")

    async def begin(self, tenant: str, work: ProgramWork) -> asyncio.Future[bytes]:
        """Wait for a slot and begin; the future is that of the last piece of the body. It goes on
        if its waiter is cancelled, and keeps its slot until it has ended. Raises Overloaded."""
        seconds = self.limits.max_seconds
        try:
            async with asyncio.timeout(seconds):
                await self.slots.take(tenant)
        except TimeoutError as error:
            message = f"the run has waited {seconds:g} s for others to end; try later"
            raise Overloaded(message) from error
        loop = asyncio.get_running_loop()
        failure = DeadlineExceeded(f"the run took longer than {seconds:g} s (of this server)")
        late = loop.call_later(seconds, work.run.abort, failure)
        ended = loop.run_in_executor(self._threads, work.execute)

        def end(_: object) -> None:
            late.cancel()
            self.slots.give(tenant)
            if not ended.cancelled():
                ended.exception()  # nobody may be left who reads it

        ended.add_done_callback(end)
        return ended


class Work(Protocol):
    """A run, and the request that it belongs to."""

    @property
    def context(self) -> RequestContext:
        """The request."""

    def abort(self, error: BaseException) -> None:
        """End the run early."""


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """A run in a thread of this server, and the request that it belongs to."""

    run: Run
    context: RequestContext

    def abort(self, error: BaseException) -> None:
        """As `Work.abort`."""
        self.run.abort(error)

    def execute(self) -> bytes:
        """Run to the end, in this thread; the last piece of the body. Raises Failed in place of a
        piece that is an error."""
        self.run.execute()
        error = self.failure()
        if error is None:
            try:
                state = self.run.saved(0).as_json()
                return b'data: {"done":' + _json(state) + b"}\n\n"
            except InvalidCall as refused:
                error = refused
        raise Failed(error, error_report(error, self._state()))

    def failure(self) -> ForkrootError | None:
        """What ended the run."""
        if self.context.is_disconnected:
            what = "the server is shutting down" if self.context.is_cut_off else None
            return BackendClosed(what) if what else ProgramError("the run was aborted")
        error = self.run.failure()
        cause = error.__cause__ if isinstance(error, ProgramError) else None
        if error is None or (isinstance(error, ForkrootError) and _is_public(cause)):
            return error
        _log.error("a program failed", exc_info=error)
        failure = CallFailed("the server failed on this program")
        failure.__cause__ = error
        return failure

    def _state(self) -> dict[str, Any] | None:
        """What can be read of a failed run."""
        with suppress(ForkrootError):
            return self.run.saved(0).as_json()
        return None


async def pieces(found: AsyncIterator[bytes], work: Work) -> AsyncGenerator[bytes]:
    """The body, piece by piece, of these. An error before the first piece is raised as Failed, and
    a later one is the last piece. The run ends when this is closed."""
    following = asyncio.ensure_future(anext(found))
    has_begun = is_over = False
    try:
        while not is_over:
            done, _ = await asyncio.wait({following}, timeout=SILENCE)
            piece = following.result() if done else COMMENT
            is_over = isinstance(piece, Final)
            yield piece
            has_begun = True
            if done and not is_over:
                following = asyncio.ensure_future(anext(found))
    except Failed as failed:
        is_over = True
        work.context.refusal = fault_of(failed.error).code
        if not has_begun:
            raise
        yield Final(encode([failed.event]))
    finally:
        if not is_over:
            following.cancel()
            work.abort(ProgramError("the run was ended"))


async def run_here(
    threads: RunThreads, tenant: str, work: ProgramWork, is_streamed: bool
) -> AsyncIterator[bytes]:
    """The pieces of a run of this server: those of its events, and the last one."""
    try:
        ended = await threads.begin(tenant, work)
    except Overloaded as error:
        raise Failed(error, error_report(error, None)) from error
    if is_streamed:
        async for events in Progress(work.run.interpreter).events():
            yield encode(events)
    yield Final(await asyncio.shield(ended))


def _is_public(cause: BaseException | None) -> bool:
    return cause is None or isinstance(cause, ForkrootError)


def error_report(error: ForkrootError, state: dict[str, Any] | None) -> Event:
    """What a body says of the error that ended a run."""
    event = {**error_event(error), "notes": list(getattr(error, "__notes__", ()))}
    if isinstance(error, UnsetVariable):
        event["unset"] = list(error.args)
    return event if state is None else {**event, "state": state}


def _json(state: dict[str, Any]) -> bytes:
    return json.dumps(state, separators=(",", ":")).encode()
