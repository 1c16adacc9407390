"""Shows that loops are compiled because no earlier process has left them, how many of how many, and
how long that will take: the one wait of a first start that could be taken for a standstill.

Knows of loops only their names and about how long each takes.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

log = logging.getLogger(__name__)
Show: TypeAlias = Callable[[int, int, float], None]
_UNKNOWN = 1.0  # seconds of a loop that was not expected


def line(total: int, seconds: float) -> str:
    """The message where there is no terminal, with so many seconds estimated."""
    about = max(5 * round(seconds / 5), 5)
    loops = "1 loop" if total == 1 else f"{total} loops"
    return f"forkroot: compiling {loops} for this processor, once: about {about} s"


class Shown:
    """Shows progress to the user who started this process: a bar on a terminal, which goes when all
    is done; elsewhere one line in the log, which goes to stderr where a program has not set up
    logging otherwise."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, done: int, total: int, seconds: float) -> None:
        """So many loops are compiled of those that will be, and the rest takes about so long."""
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        if self._bar is None and not is_terminal:
            if done == 0:
                log.warning(line(total, seconds))
            return
        if self._bar is None and done == total:
            return
        self._bar = self._bar or _bar(total)
        self._bar.total, self._bar.n = total, done
        self._bar.set_postfix_str(f"about {seconds:.0f} s left", refresh=False)
        self._bar.refresh()
        if done == total:
            self._bar.close()
            self._bar = None


class Progress:
    """Counts the loops that are compiled, and shows how far they are. clock: gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, float] = {}
        self._started_at: dict[str, float] = {}  # when, of those that are compiled now
        self._num_workers, self._num_open = 1, 0
        self._done, self._taken, self._expected = 0, 0.0, 0.0
        self._lock = threading.Lock()

    def expect(self, seconds: Mapping[str, float], num_workers: int = 0) -> None:
        """These loops are wanted before `end`, each of which takes about so long to compile; others
        until then are counted with them. num_workers: how many are compiled at a time; 0: one."""
        with self._lock:
            self._num_open += 1
            self._left.update(seconds)
            self._num_workers = max(num_workers, 1)

    def __call__(self, name: str, event: str) -> None:
        """The compilation of a loop has "started" or is "done", or the loop is "cached"."""
        now = self._clock()
        with self._lock:
            if event == "started":
                is_first = not self._started_at and not self._done
                is_new = name not in self._left
                self._left.setdefault(name, _UNKNOWN)
                self._started_at[name] = now
                if is_first or is_new:
                    self._report(now)
                return
            seconds = self._left.pop(name, 0.0)
            if event == "done":
                self._done += 1
                self._expected += seconds
                self._taken += now - self._started_at.pop(name, now)
                self._report(now)
            self._restart()

    def end(self) -> None:
        """Nothing else is wanted."""
        with self._lock:
            self._num_open -= 1
            self._left.clear()
            if self._done:
                self._report(self._clock())
            self._restart()

    def _restart(self) -> None:
        if not self._left and self._num_open <= 0:
            self._started_at.clear()
            self._done, self._taken, self._expected = 0, 0.0, 0.0
            self._num_workers, self._num_open = 1, 0

    def _report(self, now: float) -> None:
        """By the pace so far, once something is done. The longest loop may keep all waiting."""
        pace = self._taken / self._expected if self._expected else 1.0
        left = [
            max(seconds * pace - (now - self._started_at.get(name, now)), 0.0)
            for name, seconds in self._left.items()
        ]
        seconds = max(sum(left) / self._num_workers, max(left, default=0.0))
        show(self._done, self._done + len(left), seconds)


def _bar(total: int) -> Any:
    from tqdm import tqdm

    layout = "{desc}: {bar:12} {n}/{total} {unit}s{postfix}"  # less than 80 columns
    described = "forkroot: compiling, once"
    return tqdm(total=total, desc=described, unit="loop", leave=False, bar_format=layout)


show: Show = Shown()


@functools.cache
def progress(listen: Callable[[Progress], None]) -> Progress:
    """The one of this process, which listens from the first time on."""
    found = Progress()
    listen(found)
    return found


@contextlib.contextmanager
def shown(
    listen: Callable[[Progress], None], seconds: Mapping[str, float], num_workers: int = 0
) -> Iterator[None]:
    """Show how far these loops are, which are compiled meanwhile; num_workers: as in
    `Progress.expect`."""
    counted = progress(listen)
    counted.expect(seconds, num_workers)
    try:
        yield
    finally:
        counted.end()
