"""Calls that come one by one from threads or tasks that run together, submitted at once.

Who is expected is known before (`batch`: its inputs; `RunnableParallel`: its branches), and not
whether each of them will call: one may find its answer in a cache, or fail before. So each one
arrives with a call or leaves without; nobody waits longer than `patience` for the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future

from ...core.protocol import Call, Reply


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
        with contextlib.suppress(TimeoutError):
            return future.result(self._patience)
        self._start()
        return future.result()

    async def asubmit(self, member: Hashable, call: Call, submit_all: Submit) -> Reply:
        """As `submit`, for a task. Where the task is cancelled, so is its call."""
        future, is_last = self._arrive(member, call, submit_all)
        answer = asyncio.wrap_future(future)
        try:
            if not is_last:
                await asyncio.wait([answer], timeout=self._patience)
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
