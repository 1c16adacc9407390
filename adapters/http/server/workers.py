"""Threads that read and prepare large requests, so that others do not wait for them."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
SMALL = 1 << 14  # bytes of a body that is read and prepared at once
_NUM_THREADS = 2  # at a time: the event loop waits its turn for the interpreter lock behind each
_BUSY, _MOST_REST = 0.001, 0.005  # seconds


class Workers:
    """A few threads, shared by all requests of a server. They start with their first work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "forkroot-body")

    async def run(self, size: int, action: Callable[[], T]) -> T:
        """The result of an action for a request of so many bytes: at once for a small one, else in
        a thread."""
        if size <= SMALL:
            return action()
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        return await loop.run_in_executor(self._threads, context.run, action)


class Pace:
    """Half of the time for a thread that computes, and half for all others. Mutable."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def rest(self) -> None:
        """Sleep as long as it has computed since the last time, if that was a millisecond."""
        busy = time.perf_counter() - self._start
        if busy >= _BUSY:
            time.sleep(min(busy, _MOST_REST))
            self._start = time.perf_counter()
