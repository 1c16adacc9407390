"""The reply to a call: a stream of chunks that ends exactly once.

One `Mailbox` may be read by threads and by asyncio tasks; its producer is the backend. It knows
nothing of engines: it only carries.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from .errors import CallFailed, ForkrootError
from .protocol import Call, Chunk, Completion, Reply, as_call

_log = logging.getLogger(__name__)
_Wake = Callable[[], object]
T = TypeVar("T")
WAKES_PER_VISIT = 8  # readers that are woken before the loop does other work


class LoopNotifier:
    """Wakes tasks of one event loop, from any thread.

    The loop is called once for all tasks that are to wake by then: a step of an engine that has a
    chunk for each of many readers costs one wake-up, not one each. Tasks are woken a few at a time,
    so that other work of the loop need not wait for all of them, and those that have received
    nothing yet come first.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._is_due = False
        self._first: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    def wake(self, waiting: asyncio.Future[None], is_first: bool = False) -> None:
        """Set this future of the loop, soon. Does nothing if the loop is closed.
        is_first: nothing was woken for its reader before."""
        (self._first if is_first else self._others).append(waiting)
        if not self._is_due:  # else the pending visit wakes it: `_is_due` is cleared before that
            self._is_due = True
            try:
                self.loop.call_soon_threadsafe(self._wake_some)
            except RuntimeError:  # the loop is closed: nothing waits there
                self._is_due = False
                self._first.clear()
                self._others.clear()

    def _wake_some(self) -> None:
        self._is_due = False
        for _ in range(WAKES_PER_VISIT):
            queue = self._first or self._others
            if not queue:
                return
            waiting = queue.popleft()
            if not waiting.done():
                waiting.set_result(None)
        if self._first or self._others:
            self._is_due = True
            self.loop.call_soon(self._wake_some)


def batches(
    reply: Reply, notifier: LoopNotifier | None = None, seen: Callable[[int], object] | None = None
) -> AsyncIterator[Sequence[Chunk]]:
    """As `Mailbox.batches`, of any reply: one by one where it has no `batches`."""
    read: Callable[..., AsyncIterator[Sequence[Chunk]]] | None
    read = getattr(reply, "batches", None)
    return _one_by_one(reply, seen) if read is None else read(notifier, seen)


async def _one_by_one(
    reply: Reply, seen: Callable[[int], object] | None
) -> AsyncIterator[Sequence[Chunk]]:
    async for chunk in reply:
        if seen is not None:
            seen(1)
        yield (chunk,)


class Mailbox:
    """The `Reply` of a backend in this process: what is put in on one side is read on the other.

    cancel: called with the mailbox when a reader asks to end the call early. submitted: the
      monotonic clock's second at which the call came. Raises InvalidCall for what is no Call.
    """

    def __init__(self, call: Call, cancel: Callable[[Mailbox], object] | None = None) -> None:
        self.call = as_call(call)
        self.submitted = time.monotonic()
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
            if not self._chunk_wakes:
                return
            wakes, self._chunk_wakes = self._chunk_wakes, []
        _wake(wakes)

    def finish(self, completion: Completion) -> None:
        """Producer: end with this completion. Only the first ending counts."""
        self._end(completion, None)

    def fail(self, error: BaseException) -> None:
        """Producer: end with this error. Only the first ending counts."""
        self._end(None, error)

    def prepared(self, action: Callable[[], T]) -> T | None:
        """Producer: the result of a part of the call's preparation; None where that failed, which
        ends the call: in its own error if that is typed, else in CallFailed."""
        try:
            return action()
        except ForkrootError as error:
            self.fail(error)
        except Exception as error:
            failure = CallFailed(f"the call could not be prepared: {error!r:.200}")
            failure.__cause__ = error
            self.fail(failure)
        return None

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
        if self.done():
            return self._outcome()
        event = threading.Event()
        if self._register(event.set) and not event.wait(timeout):
            self._unregister(event.set)
            raise TimeoutError(f"the call has not ended within timeout={timeout} s")
        return self._outcome()

    def when_done(self, action: Callable[[Reply], object]) -> None:
        """Call `action(self)` once at the end, in the producer's thread (or now, if ended)."""
        if not self._register(lambda: action(self)):
            action(self)

    def follow(self, take: Callable[[Sequence[Chunk]], object]) -> None:
        """Call `take` with all chunks, in order: now with those that have come, and later in the
        producer's thread. `when_done`, called after this, comes after the last of them."""
        index = 0

        def take_new() -> None:
            nonlocal index
            while True:
                if ready := self._chunks[index:]:
                    index += len(ready)
                    take(ready)
                if self._register(take_new, index) or self._is_ended(index):
                    return

        take_new()

    def __iter__(self) -> Iterator[Chunk]:
        index = 0
        while True:
            while index < len(self._chunks):
                yield self._chunks[index]
                index += 1
            event = threading.Event()
            if self._register(event.set, index):
                event.wait()
            elif self._is_ended(index):
                self._outcome()
                return

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._result().__await__()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for chunks in self.batches():
            for chunk in chunks:
                yield chunk

    async def batches(
        self, notifier: LoopNotifier | None = None, seen: Callable[[int], object] | None = None
    ) -> AsyncIterator[Sequence[Chunk]]:
        """All chunks, those that have arrived meanwhile together; then raises as `async for` does.

        notifier: of the running loop, for readers that share one; None: a new one. seen: called
        with the number of chunks each time.
        """
        notifier = notifier or LoopNotifier(asyncio.get_running_loop())
        index = 0
        while True:
            ready = self._chunks[index:]
            if ready:
                index += len(ready)
                if seen is not None:
                    seen(len(ready))
                yield ready
            elif not await self._wait(notifier, index):
                self._outcome()
                return

    async def _result(self) -> Completion:
        await self._wait(LoopNotifier(asyncio.get_running_loop()))
        return self._outcome()

    async def _wait(self, notifier: LoopNotifier, index: int | None = None) -> bool:
        """Wait for the end, or for chunk `index`; False where there is nothing to wait for."""
        waiting = notifier.loop.create_future()

        def wake() -> None:
            notifier.wake(waiting, not index)

        if not self._register(wake, index):
            return index is not None and index < len(self._chunks)
        try:
            await waiting
        except BaseException:
            self._unregister(wake)
            raise
        return True

    def _is_ended(self, index: int) -> bool:
        return self._is_done and index >= len(self._chunks)

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
