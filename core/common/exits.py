"""Closes what is still open when Python ends, without keeping it alive until then."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Closeable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Stop; may be called twice."""


def close_at_exit(thing: Closeable) -> None:
    """Close this at the end of the process, if it still exists."""
    reference = weakref.ref(thing)

    @atexit.register
    def close() -> None:
        if (alive := reference()) is not None:
            alive.close()
