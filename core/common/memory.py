"""Memory of this machine, and what this process keeps of it.

Where malloc is not glibc's, a process keeps what its malloc keeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt
SECONDS_BETWEEN_TRIMS = 20.0


def available_memory() -> int:
    """Bytes that this machine can give without swapping."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def keep_freed(num_bytes: int) -> None:
    """Let malloc keep arrays of up to `num_bytes` that are freed, for the next ones: the system
    would clear their pages again. Only for a process of its own; call `trim_regularly` as well."""
    if (malloc := _malloc()) is not None:
        malloc.mallopt(_MMAP_THRESHOLD, num_bytes)
        malloc.mallopt(_TRIM_THRESHOLD, num_bytes)


def trim_regularly(
    seconds: float = SECONDS_BETWEEN_TRIMS, collects: bool = False
) -> Callable[[], None]:
    """Give pages that hold nothing back to the system every so many seconds, in a thread, until the
    function that this returns is called; and let all threads allocate in one heap, so that each can
    use what another frees. Only for a process of its own. collects: garbage is collected before.

    Without it a heap grows for hours: what stays for a while comes to lie between large arrays
    that are freed soon, and the next ones fit into no gap.
    """
    stopped = threading.Event()
    if (malloc := _malloc()) is None:
        return stopped.set
    malloc.mallopt(_ARENA_MAX, 1)

    def run() -> None:
        while not stopped.wait(seconds):
            if collects:
                give_back_freed()
            else:
                malloc.malloc_trim(0)

    threading.Thread(target=run, name="forkroot-trim", daemon=True).start()
    return stopped.set


def give_back_freed() -> None:
    """Collect garbage, and give pages that hold nothing back to the system. Takes tens of
    milliseconds, in which no other thread of Python runs."""
    gc.collect()
    if (malloc := _malloc()) is not None:
        malloc.malloc_trim(0)


@cache
def _malloc() -> Any:
    """The C library; None where its malloc is not glibc's."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        return library
    return None
