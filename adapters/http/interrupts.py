"""Ctrl-C in a program that serves: the first one is obeyed by what runs, and each later one ends
the process at once, without a word. Its child processes see that it is gone, and end too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

EXIT_CODE = 130


@contextlib.contextmanager
def obeyed_once() -> Iterator[None]:
    """While this runs, the first Ctrl-C raises KeyboardInterrupt; the process is then to end, and
    what is left of it is quiet, too. Nothing changes outside of the main thread, where no signals
    arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, before)


def end_now() -> None:
    """End the process: no drain, no clean-up, no output."""
    os._exit(EXIT_CODE)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, lambda number, frame: end_now())
    raise KeyboardInterrupt
