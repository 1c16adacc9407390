"""Batches calls that concurrent threads or tasks make one by one.

The members are known before (`batch`: its inputs; `RunnableParallel`: its branches) or as they
begin (tasks of a LangGraph step). Not every member calls: its answer may be cached, or it may fail.
So each member arrives with a call or leaves without one, and waits at most `patience` for the
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future

from ....core.api.protocol import Call, Reply


class CallBatcher:
    """Submits the calls of `expected` members together, once. Later calls are submitted alone.

    patience: the longest that a member waits for the others, in seconds.
    """

    def __init__(self, expected: int, patience: float) -> None:
        self._expected = expected
        self._patience = patience
        self._lock = threading.Lock()
        self._settled: set[Hashable] = set()
        self._waiting: list[tuple[Call, Future[Reply], Submit]] = []

    def leave(self, member: Hashable) -> None:
        """Note that this member will not call; no effect if it has arrived."""
        with self._lock:
            self._settled.add(member)
            is_last = self._is_complete()
        if is_last:
            self._start()

    def submit(self, member: Hashable, call: Call, submit_all: Submit) -> Reply:
        """Submit the call together with those of the other members. Waits for them."""
        future, is_last = self._arrive(member, call, submit_all)
        if is_last:
            self._start()
        for seconds in self._pauses():
            with contextlib.suppress(TimeoutError):
                return future.result(seconds)
        self._start()
        return future.result()

    async def asubmit(self, member: Hashable, call: Call, submit_all: Submit) -> Reply:
        """As `submit`, for a task. Cancelling the task cancels its call."""
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
                future.add_done_callback(cancel_result)
            raise

    def _arrive(
        self, member: Hashable, call: Call, submit_all: Submit
    ) -> tuple[Future[Reply], bool]:
        """A future of the reply, and whether this is the last member."""
        future: Future[Reply] = Future()
        with self._lock:
            self._settled.add(member)
            self._waiting.append((call, future, submit_all))
            return future, self._is_complete()

    def _pauses(self) -> Iterator[float]:
        """Seconds of each wait of a member that has arrived, before it submits what waits."""
        yield self._patience

    def _is_complete(self) -> bool:
        return len(self._settled) >= self._expected

    def _start(self) -> None:
        """Submit the waiting calls, in one batch for each backend."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        waiting = [item for item in waiting if item[1].set_running_or_notify_cancel()]
        while waiting:
            submit_all = waiting[0][2]
            batch = [item[:2] for item in waiting if item[2] == submit_all]
            waiting = [item for item in waiting if item[2] != submit_all]
            try:
                replies = submit_all([call for call, _ in batch])
            except Exception as error:
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (_, future), reply in zip(batch, replies, strict=True):
                future.set_result(reply)


Submit = Callable[[Sequence[Call]], list[Reply]]


def cancel_result(future: Future[Reply] | asyncio.Future[Reply]) -> None:
    """End the call of a future that has a reply."""
    if not future.cancelled() and future.exception() is None:
        future.result().cancel()
