"""Calls that come one by one from threads or tasks that run together, submitted at once.

Who is expected is known before (`batch`: its inputs; `RunnableParallel`: its branches), or seen as
they begin (the tasks of a step of LangGraph), and not whether each of them will call: one may find
its answer in a cache, or fail before. So each one arrives with a call or leaves without; nobody
waits longer than `patience` for the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future

from ....core.api.protocol import Call, Reply


class Gathering:
    """One meeting of `expected` members. After it, members go their own ways.

    patience: seconds that a member waits for the others at most.
    """

    def __init__(self, expected: int, patience: float) -> None:
        self._expected = expected
        self._patience = patience
        self._lock = threading.Lock()
        self._settled: set[Hashable] = set()
        self._waiting: list[tuple[Call, Future[Reply], Submit]] = []

    def leave(self, member: Hashable) -> None:
        """This member will not call; nothing if it has arrived."""
        with self._lock:
            self._settled.add(member)
            is_last = self._is_complete()
        if is_last:
            self._start()

    def submit(self, member: Hashable, call: Call, submit_all: Submit) -> Reply:
        """Submit the call together with those of the others. Waits for them."""
        future, is_last = self._arrive(member, call, submit_all)
        if is_last:
            self._start()
        for seconds in self._pauses():
            with contextlib.suppress(TimeoutError):
                return future.result(seconds)
        self._start()
        return future.result()

    async def asubmit(self, member: Hashable, call: Call, submit_all: Submit) -> Reply:
        """As `submit`, for a task. Where the task is cancelled, so is its call."""
        future, is_last = self._arrive(member, call, submit_all)
        answer = asyncio.wrap_future(future)
        try:
            for seconds in () if is_last else self._pauses():
                await asyncio.wait([answer], timeout=seconds)
                if answer.done():
                    break
            if not answer.done():
                await asyncio.to_thread(self._start)
            return await answer
        except asyncio.CancelledError:
            if not future.cancel():
                future.add_done_callback(_cancelled)
            raise

    def _arrive(
        self, member: Hashable, call: Call, submit_all: Submit
    ) -> tuple[Future[Reply], bool]:
        """The reply that will come, and whether nobody else is waited for."""
        future: Future[Reply] = Future()
        with self._lock:
            self._settled.add(member)
            self._waiting.append((call, future, submit_all))
            return future, self._is_complete()

    def _pauses(self) -> Iterator[float]:
        """How long one who has arrived waits, again and again, before it starts what waits."""
        yield self._patience

    def _is_complete(self) -> bool:
        return len(self._settled) >= self._expected

    def _start(self) -> None:
        """Submit what waits. Calls to different backends are submitted apart."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        waiting = [item for item in waiting if item[1].set_running_or_notify_cancel()]
        while waiting:
            submit_all = waiting[0][2]
            together = [item for item in waiting if item[2] == submit_all]
            waiting = [item for item in waiting if item[2] != submit_all]
            _settle(submit_all, [item[0] for item in together], [item[1] for item in together])


class OpenGathering(Gathering):
    """A meeting of those who have joined it so far: it waits until they have settled and nobody has
    joined for a while, and for nobody who joins after it has begun to call.

    quiet: seconds of that while. One who is the only one so far waits for so long when it calls:
    threads that are to join may not have come to run yet.
    """

    def __init__(self, patience: float, quiet: float) -> None:
        super().__init__(0, patience)
        self._quiet = quiet
        self._has_started = False
        self._changed = time.monotonic()

    def join(self) -> None:
        """One more is expected."""
        with self._lock:
            self._expected += 1
            self._changed = time.monotonic()

    def _arrive(
        self, member: Hashable, call: Call, submit_all: Submit
    ) -> tuple[Future[Reply], bool]:
        with self._lock:
            if self._expected == 1:
                self._changed = time.monotonic()
        return super()._arrive(member, call, submit_all)

    def _pauses(self) -> Iterator[float]:
        end = time.monotonic() + self._patience
        while not self._is_complete() and (left := end - time.monotonic()) > 0:
            yield self._quiet or left

    def _is_complete(self) -> bool:
        is_quiet = time.monotonic() - self._changed >= self._quiet
        return self._has_started or (is_quiet and super()._is_complete())

    def _start(self) -> None:
        self._has_started = True
        super()._start()


Submit = Callable[[Sequence[Call]], list[Reply]]


def _settle(submit_all: Submit, calls: Sequence[Call], futures: Sequence[Future[Reply]]) -> None:
    try:
        replies = submit_all(calls)
    except Exception as error:
        for future in futures:
            future.set_exception(error)
        return
    for future, reply in zip(futures, replies, strict=True):
        future.set_result(reply)


def _cancelled(future: Future[Reply]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().cancel()
