"""Lines of the log that many requests may cause: once a second at most."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

_log = logging.getLogger("forkroot.http")


class Seldom:
    """Logs a kind of line once a second at most; the next one counts those that were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}
        self._num_left_out: Counter[str] = Counter()

    def warn(self, text: str, with_cause: bool = False) -> None:
        """Log a line, unless the same one was logged within a second. with_cause: and the exception
        that is being handled."""
        now = self._clock()
        if now < self._next.get(text, now):
            self._num_left_out[text] += 1
            return
        self._next[text] = now + 1.0
        num = self._num_left_out.pop(text, 0)
        more = f" ({num} times more in the last second)" if num else ""
        _log.warning("%s%s", text, more, exc_info=with_cause)
