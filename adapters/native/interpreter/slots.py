"""A variable's value on its way from one stream to others, which do not wait for it in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Slot:
    """A value that is set once, or the error that keeps it from being set; thread-safe."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._is_done = False
        self._actions: list[Callable[[Slot], object]] = []

    @property
    def is_done(self) -> bool:
        """Whether there is a value, or an error."""
        return self._is_done

    def set(self, value: Any) -> None:
        """The variable was set; only the first ending counts."""
        self._end(value, None)

    def fail(self, error: BaseException) -> None:
        """The variable will not be set; only the first ending counts."""
        self._end(None, error)

    def when_done(self, action: Callable[[Slot], object]) -> None:
        """Call `action(self)` at the end (or now, if that was before)."""
        with self._lock:
            if not self._is_done:
                self._actions.append(action)
                return
        action(self)

    def wait(self) -> None:
        """Wait for the end."""
        if self._is_done:
            return
        event = threading.Event()
        self.when_done(lambda _: event.set())
        event.wait()

    def _end(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._is_done:
                return
            self.value, self.error = value, error
            self._is_done = True
            actions, self._actions = self._actions, []
        for action in actions:
            action(self)
