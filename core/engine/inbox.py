"""Actions that other threads post to the engine's thread, run between two of its steps.

A program that is answered often calls again at once, and misses the step that has just started: so
the thread waits a moment for such calls. It knows nothing of engines; standard library only.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_SHARE = 0.4  # of the time that those who ended took of a step: more is lost by waiting than gained
_MAX_SECONDS = 0.01  # seconds


class _Posted(NamedTuple):
    """arrived: the clock's second at which a call arrived; None where it is not a call."""

    action: Callable[[], object]
    arrived: float | None


class Inbox:
    """Actions from any thread, run by one thread. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._posted: queue.SimpleQueue[_Posted] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._window: tuple[float, float] | None = None
        self._expects_calls = False

    @property
    def has_actions(self) -> bool:
        """Whether actions are posted."""
        return not self._posted.empty()

    def post(self, action: Callable[[], object], is_call: bool = False) -> bool:
        """Post an action for the thread; False where the inbox is closed. is_call: it admits a
        call."""
        with self._lock:
            if not self._is_closed:
                self._posted.put(_Posted(action, self._clock() if is_call else None))
            return not self._is_closed

    def wait(self, timeout: float | None) -> None:
        """Run the next action, if one is posted within `timeout` seconds (None: no limit)."""
        try:
            posted = self._posted.get(timeout=timeout)
        except queue.Empty:
            return
        self._run(posted)

    def drain(self) -> None:
        """Run all posted actions."""
        while self.has_actions:
            self._run(self._posted.get())

    def close(self) -> None:
        """Accept no more actions."""
        with self._lock:
            self._is_closed = True

    def wait_for_calls(self, num_ended: int, num_open: int, seconds: float) -> None:
        """After a step of `seconds`, in which `num_ended` of `num_open` calls ended: wait for as
        many new ones, for less than their share of the step. Does not wait if no call arrived in
        time after the last calls that ended."""
        timeout = min(_MAX_SECONDS, _SHARE * seconds * num_ended / num_open)
        start = self._clock()
        end = start + timeout
        self._window = start, end
        while self._expects_calls and num_ended and (left := end - self._clock()) > 0:
            try:
                posted = self._posted.get(timeout=left)
            except queue.Empty:
                break
            num_ended -= posted.arrived is not None and posted.arrived >= start
            self._run(posted)

    def _run(self, posted: _Posted) -> None:
        if self._window is not None and posted.arrived is not None:
            start, end = self._window
            if posted.arrived >= start:
                self._expects_calls, self._window = posted.arrived <= end, None
        posted.action()
