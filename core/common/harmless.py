"""Errors of work that only saves time, such as sending hints: logged and counted, never raised.

Each kind of error is logged once for each place, at debug level with its cause; all are counted.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class HarmlessErrors:
    """Errors that were not raised, in this process. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, str]] = Counter()

    @contextmanager
    def suppress(self, log: logging.Logger, what: str) -> Iterator[None]:
        """Keep an error of the block from its caller. log: the module's logger; what: the work that
        the error ended."""
        try:
            yield
        except Exception as error:
            kind = (log.name, what, type(error).__name__)
            with self._lock:
                self._counts[kind] += 1
                is_first = self._counts[kind] == 1
            if is_first:
                log.debug("%s failed; it only costs time (logged once)", what, exc_info=True)

    @property
    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many there were, by logger, work and type of error."""
        with self._lock:
            return dict(self._counts)

    @property
    def total(self) -> int:
        """How many there were."""
        with self._lock:
            return self._counts.total()


hint_errors = HarmlessErrors()
