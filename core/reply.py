"""The returning half of the door: a stream of chunks that ends exactly once.

One `Mailbox` may be read by threads and by asyncio tasks; its producer is the backend. It knows
nothing of engines: it only carries.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Any

from .protocol import Call, Chunk, Completion, Reply

_log = logging.getLogger(__name__)
_Wake = Callable[[], object]


class Bell:
    """Wakes tasks of one event loop, from any thread: those woken at one time by one visit.

    Its loop is entered once for all that ring before it answers: a step of an engine that has a
    chunk for each of many readers costs one wake-up, not one each.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._rung: list[asyncio.Future[None]] = []

    def wake(self, waiting: asyncio.Future[None]) -> None:
        """Set this future of the bell's loop, soon; nothing happens where the loop is closed."""
        with self._lock:
            self._rung.append(waiting)
            is_first = len(self._rung) == 1
        if is_first:
            try:
                self.loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed: nobody waits there
                self._taken()

    def _answer(self) -> None:
        for waiting in self._taken():
            if not waiting.done():
                waiting.set_result(None)

    def _taken(self) -> list[asyncio.Future[None]]:
        with self._lock:
            rung, self._rung = self._rung, []
        return rung


def batches(reply: Reply, bell: Bell | None = None) -> AsyncIterator[Sequence[Chunk]]:
    """As `Mailbox.batches`, of any reply: one by one where it cannot tell what is there."""
    tell: Callable[[Bell | None], AsyncIterator[Sequence[Chunk]]] | None
    tell = getattr(reply, "batches", None)
    return _singly(reply) if tell is None else tell(bell)


async def _singly(reply: Reply) -> AsyncIterator[Sequence[Chunk]]:
    async for chunk in reply:
        yield (chunk,)


class Mailbox:
    """The `Reply` of a backend in this process: what is put in on one side is read on the other.

    cancel: called with the mailbox when a reader asks to end the call early.
    """

    def __init__(self, call: Call, cancel: Callable[[Mailbox], object] | None = None) -> None:
        self.call = call
        self._cancel = cancel
        self._lock = threading.Lock()
        self._chunks: list[Chunk] = []
        self._completion: Completion | None = None
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._is_done = False
        self._chunk_wakes: list[_Wake] = []
        self._done_wakes: list[_Wake] = []

    def put(self, chunk: Chunk) -> None:
        """Producer: add a chunk. Ignored after the end."""
        with self._lock:
            if self._is_done:
                return
            self._chunks.append(chunk)
            wakes, self._chunk_wakes = self._chunk_wakes, []
        _wake(wakes)

    def finish(self, completion: Completion) -> None:
        """Producer: end with this completion. Only the first ending counts."""
        self._end(completion, None)

    def fail(self, error: BaseException) -> None:
        """Producer: end with this error. Only the first ending counts."""
        self._end(None, error)

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._is_done

    def cancel(self) -> None:
        """Ask the backend to end the call early; a no-op once it has ended."""
        if self._cancel is not None and not self._is_done:
            self._cancel(self)

    def error(self) -> BaseException | None:
        """The error that ended the call, or None; does not wait."""
        return self._error

    def result(self, timeout: float | None = None) -> Completion:
        """As `Reply.result`."""
        event = threading.Event()
        if self._register(event.set) and not event.wait(timeout):
            self._unregister(event.set)
            raise TimeoutError(f"the call has not ended within timeout={timeout} s")
        return self._outcome()

    def when_done(self, action: Callable[[Reply], object]) -> None:
        """Call `action(self)` once at the end, in the producer's thread (or now, if ended)."""
        if not self._register(lambda: action(self)):
            action(self)

    def __iter__(self) -> Iterator[Chunk]:
        index = 0
        while True:
            while index < len(self._chunks):
                yield self._chunks[index]
                index += 1
            event = threading.Event()
            if self._register(event.set, index):
                event.wait()
            elif self._is_done and index >= len(self._chunks):
                self._outcome()
                return

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._result().__await__()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for chunks in self.batches():
            for chunk in chunks:
                yield chunk

    async def batches(self, bell: Bell | None = None) -> AsyncIterator[Sequence[Chunk]]:
        """All chunks, together those that are there at one time; then raises as `async for` does.

        bell: of the running loop, for readers that share one; None: one of its own.
        """
        bell = bell or Bell(asyncio.get_running_loop())
        index = 0
        while True:
            ready = self._chunks[index:]
            if ready:
                index += len(ready)
                yield ready
            elif not await self._wait(bell, index):
                self._outcome()
                return

    async def _result(self) -> Completion:
        await self._wait(Bell(asyncio.get_running_loop()))
        return self._outcome()

    async def _wait(self, bell: Bell, index: int | None = None) -> bool:
        """Wait for the end, or for chunk `index`; False where there is nothing to wait for."""
        waiting = bell.loop.create_future()

        def wake() -> None:
            bell.wake(waiting)

        if not self._register(wake, index):
            return index is not None and index < len(self._chunks)
        try:
            await waiting
        finally:
            self._unregister(wake)
        return True

    def _register(self, wake: _Wake, index: int | None = None) -> bool:
        """Whether `wake` will be called: not if the end (or chunk `index`) is already here."""
        with self._lock:
            if self._is_done or (index is not None and index < len(self._chunks)):
                return False
            if index is None:
                self._done_wakes.append(wake)
            else:
                self._chunk_wakes.append(wake)
            return True

    def _unregister(self, wake: _Wake) -> None:
        """`wake` waits no longer; nothing if it was called."""
        with self._lock:
            for wakes in (self._chunk_wakes, self._done_wakes):
                if wake in wakes:
                    wakes.remove(wake)

    def _end(self, completion: Completion | None, error: BaseException | None) -> None:
        with self._lock:
            if self._is_done:
                return
            self._completion = completion
            self._error = error
            self._trace = None if error is None else error.__traceback__
            self._is_done = True
            wakes = self._chunk_wakes + self._done_wakes
            self._chunk_wakes, self._done_wakes = [], []
        _wake(wakes)

    def _outcome(self) -> Completion:
        if self._error is not None:
            raise self._error.with_traceback(self._trace)  # not longer with each reader
        assert self._completion is not None
        return self._completion


def _wake(wakes: list[_Wake]) -> None:
    for wake in wakes:
        try:
            wake()
        except BaseException:  # a reader's fault, CancelledError too, must not harm the producer
            _log.exception("a reader of a reply failed")
