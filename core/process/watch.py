"""Tells a process that hangs from one that is slow. Standard library only.

The sign is processor time, as the kernel counts it for a process and all that it has started.
Whatever is slow takes some: a first compilation, a long prompt on a slow processor, weights that
are read from a disk and summed up. What hangs takes none: a process that was stopped or frozen, a
deadlock, one whose memory was swapped out and does not come back. So a process counts as hanging
that, while something is asked of it, for so many seconds

- makes no progress by what it tells of itself,
- and takes less than a hundredth of a processor,
- and is not held by a debugger.

Its own word is no such sign where it only says that it is there: in a deadlock, a thread that does
so goes on. But it says what it waits for, and who waits for another process is excused as long as
it says so again and again; a stopped one does not. Where the kernel tells nothing of processor time
(there is no /proc) that word has to do.

A watch counts the time that it has been looking itself: if all was stopped, a machine asleep or
the watch's own process in a debugger, none has passed. A process that takes processor time without
end is not noticed; nobody can tell it from one that is about to be done.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SECONDS = 15.0  # without a sign of life
LOOKS = 10  # in this time
_LEAST_SHARE = 0.01  # of a processor
_LEAST_SECONDS = 0.02  # what the kernel's clock can tell from nothing
_PROC = Path("/proc")


class Watched:
    """A process, and for how many seconds it has shown no sign of life.

    patience: seconds after which it will count as hanging; the costly signs are looked at from half
    of it on.
    """

    def __init__(self, pid: int, patience: float) -> None:
        self.quiet = 0.0
        self._pid = pid
        self._late = patience / 2
        self._progress: object = None
        self._alone: float | None = None  # processor time at the last sign of life
        self._family: float | None = None  # the same with all that it has started

    def look(
        self, seconds: float, progress: object, is_excused: bool = False, is_heard: bool = False
    ) -> None:
        """Note what became of it within so many seconds of looking.

        progress: whatever it tells that changes with its work. is_excused: nothing is asked of it,
        or it may wait for others. is_heard: it has said something since the last look.
        """
        self.quiet += seconds
        alone = spent(self._pid)
        if is_excused or progress != self._progress or self._is_alive(alone, is_heard):
            self.quiet, self._progress = 0.0, progress
            self._alone, self._family = alone, None
        self._alone = alone if self._alone is None else self._alone

    def _is_alive(self, alone: float | None, is_heard: bool) -> bool:
        if alone is None:
            return is_heard
        if self._alone is None or self._has_worked(alone - self._alone):
            return self._alone is not None
        if self.quiet < self._late:
            return False
        family = alone + sum(spent(heir) or 0.0 for heir in heirs(self._pid))
        if self._family is None:
            self._family = family
        return self._has_worked(family - self._family) or is_traced(self._pid)

    def _has_worked(self, seconds: float) -> bool:
        return seconds >= max(_LEAST_SECONDS, _LEAST_SHARE * self.quiet)


def spent(pid: int) -> float | None:
    """Seconds of processor time that a process took; None where that cannot be told."""
    fields = _stat(pid)
    return None if fields is None else sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def heirs(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those that these have, and so on."""
    children = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields is not None:
            children[int(fields[1])].append(int(folder.name))
    found = children[pid]
    for heir in found:  # it grows
        found += children[heir]
        yield heir


def is_traced(pid: int) -> bool:
    """Whether a debugger holds a process."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in lines)


def _stat(pid: int) -> list[str] | None:
    """What the kernel says of a process, from its state on; None where it says nothing."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
