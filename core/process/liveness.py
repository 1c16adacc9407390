"""Tells a process that hangs from one that is slow. Standard library only.

The sign of life is processor time, as the kernel counts it for a process and its descendants. A
slow process takes some: a first compilation, a long prompt on a slow processor, weights that are
read from a disk. A hanging one takes none: it was stopped or frozen, is in a deadlock, or its
memory was swapped out. So a process with pending work hangs if, for a number of seconds, it

- reports no progress,
- takes less than a hundredth of a processor,
- and is not held by a debugger.

A process that a signal has stopped (SIGSTOP) does nothing until another one continues it: it hangs
after a fifth of that time, whatever it was to do, unless a debugger holds it.

A heartbeat alone is no sign of life: in a deadlock, the thread that sends it goes on. But it
reports whether the process waits for another one, and then the process is excused as long as
heartbeats come; a stopped process sends none. Where the kernel gives no processor time (there is no
/proc), heartbeats have to do.

The monitor counts only time in which it runs itself: while the machine sleeps, or the monitor's own
process is in a debugger, no time passes. A process that takes processor time without end is not
noticed: it looks like one that is about to finish.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TIMEOUT = 15.0  # seconds without a sign of life
CHECKS_PER_TIMEOUT = 10
_STOPPED_SHARE = 0.2  # of the timeout, after which a stopped process hangs
_MIN_SHARE = 0.01  # of a processor
_MIN_SECONDS = 0.02  # the resolution of the kernel's clock
_PROC = Path("/proc")


class LivenessMonitor:
    """Counts for how many seconds a process has shown no sign of life (`silent_seconds`), and for
    how many it was stopped (`stopped_seconds`).

    timeout: seconds after which it counts as hanging; the costly signs are read from half of it on.
    """

    def __init__(self, pid: int, timeout: float) -> None:
        self.silent_seconds = self.stopped_seconds = 0.0
        self._stopped_at: float | None = None  # processor time of a stopped process
        self._pid = pid
        self._timeout = timeout
        self._progress: object = None
        self._own_cpu: float | None = None  # processor time at the last sign of life
        self._tree_cpu: float | None = None  # the same with all descendants

    def update(
        self,
        seconds: float,
        progress: object,
        is_excused: bool = False,
        has_reported: bool = False,
    ) -> None:
        """Read the signs of life `seconds` after the last update.

        progress: any value of the process that changes with its work. is_excused: it has no pending
        work, or may wait for others. has_reported: a heartbeat came since the last update.
        """
        self.silent_seconds += seconds
        own_cpu = cpu_seconds(self._pid)
        if is_excused or progress != self._progress or self._is_alive(own_cpu, has_reported):
            self.silent_seconds, self._progress = 0.0, progress
            self._own_cpu, self._tree_cpu = own_cpu, None
        self._own_cpu = own_cpu if self._own_cpu is None else self._own_cpu
        stopped_at = own_cpu if is_stopped(self._pid) else None
        is_still = stopped_at is not None and stopped_at == self._stopped_at
        self.stopped_seconds = self.stopped_seconds + seconds if is_still else 0.0
        self._stopped_at = stopped_at

    def fault(self, factor: float = 1.0) -> str | None:
        """Why the process hangs, in words; None if it does not. factor: of the timeout for one that
        may be alive without a sign."""
        if self.stopped_seconds >= self._timeout * _STOPPED_SHARE:
            return f"stopped by a signal for {self.stopped_seconds:.1f} s"
        if self.silent_seconds >= self._timeout * factor:
            return f"no sign of life for {self.silent_seconds:.1f} s"
        return None

    def _is_alive(self, own_cpu: float | None, has_reported: bool) -> bool:
        if own_cpu is None:
            return has_reported
        if self._own_cpu is None or self._has_worked(own_cpu - self._own_cpu):
            return self._own_cpu is not None
        if self.silent_seconds < self._timeout / 2:
            return False
        tree_cpu = own_cpu + sum(cpu_seconds(pid) or 0.0 for pid in descendants(self._pid))
        if self._tree_cpu is None:
            self._tree_cpu = tree_cpu
        return self._has_worked(tree_cpu - self._tree_cpu) or is_traced(self._pid)

    def _has_worked(self, seconds: float) -> bool:
        return seconds >= max(_MIN_SECONDS, _MIN_SHARE * self.silent_seconds)


def checks(has_ended: threading.Event, timeout: float) -> Iterator[float]:
    """Until the event is set, ten times in a timeout: the seconds since the last check, without
    those in which this process did not run."""
    interval, before = timeout / CHECKS_PER_TIMEOUT, time.monotonic()
    while not has_ended.wait(interval):
        now = time.monotonic()
        yield min(now - before, 2 * interval)
        before = now


def cpu_seconds(pid: int) -> float | None:
    """Seconds of processor time that a process took; None where that is unknown."""
    fields = _stat(pid)
    return None if fields is None else sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, those that these have started, and so on."""
    children = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields is not None:
            children[int(fields[1])].append(int(folder.name))
    found = children[pid]
    for child in found:  # it grows
        found += children[child]
        yield child


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process, and no debugger holds it."""
    fields = _stat(pid)
    return fields is not None and fields[0] == "T" and not is_traced(pid)


def is_traced(pid: int) -> bool:
    """Whether a debugger holds a process."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in lines)


def _stat(pid: int) -> list[str] | None:
    """The kernel's status fields of a process, from its state on; None where there are none."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
