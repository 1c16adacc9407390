"""Actions that other threads post to the engine's thread, run between two of its steps.

A program that is answered often calls again at once, and misses the step that has just begun: so
the thread waits a moment for such calls. It knows nothing of engines; standard library only.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_SHARE = 0.4  # of the time that those who ended took of a step: more is lost by waiting than gained
_LONGEST = 0.01  # seconds


class _Posted(NamedTuple):
    """came: the clock's second at which a call came; None for what is none."""

    action: Callable[[], object]
    came: float | None


class Inbox:
    """Actions from any thread for one thread, which does them. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._posted: queue.SimpleQueue[_Posted] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_shut = False
        self._soon: tuple[float, float] | None = None
        self._is_worth_it = False

    @property
    def has_posts(self) -> bool:
        """Whether something is to be done."""
        return not self._posted.empty()

    def post(self, action: Callable[[], object], is_call: bool = False) -> bool:
        """Let the one thread do this; False: it has shut. is_call: it takes in a call."""
        with self._lock:
            if not self._is_shut:
                self._posted.put(_Posted(action, self._clock() if is_call else None))
            return not self._is_shut

    def wait(self, timeout: float | None) -> None:
        """Do what is posted next, if that is within so many seconds (None: whenever it is)."""
        try:
            posted = self._posted.get(timeout=timeout)
        except queue.Empty:
            return
        self._do(posted)

    def drain(self) -> None:
        """Do all that has been posted."""
        while self.has_posts:
            self._do(self._posted.get())

    def shut(self) -> None:
        """Take nothing more."""
        with self._lock:
            self._is_shut = True

    def await_calls(self, num_ended: int, num_open: int, seconds: float) -> None:
        """After a step of so many seconds, in which `num_ended` of `num_open` calls ended: wait for
        as many new ones, for less than their part of a step. Not where the last time that calls
        ended none came so soon."""
        timeout = min(_LONGEST, _SHARE * seconds * num_ended / num_open)
        start = self._clock()
        end = start + timeout
        self._soon = start, end
        while self._is_worth_it and num_ended and (left := end - self._clock()) > 0:
            try:
                posted = self._posted.get(timeout=left)
            except queue.Empty:
                break
            num_ended -= posted.came is not None and posted.came >= start
            self._do(posted)

    def _do(self, posted: _Posted) -> None:
        if self._soon is not None and posted.came is not None:
            start, end = self._soon
            if posted.came >= start:
                self._is_worth_it, self._soon = posted.came <= end, None
        posted.action()
