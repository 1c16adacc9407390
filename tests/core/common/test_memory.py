"""What a process keeps of memory that was freed."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref

import pytest

from forkroot.core.common.memory import available_memory, give_back_freed

PROGRAM = """
import gc, sys, threading, time, weakref
from pathlib import Path
from forkroot.core.common.memory import keep_freed, trim_regularly

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

keep_freed(1 << 28)
start, pairs = resident(), []
for _ in range(100):
    pairs.append((bytearray(1 << 20), bytearray(4096)))  # what is kept lies behind each array
small = [kept for _, kept in pairs]
del pairs
kept = resident() - start
gc.disable()
garbage = threading.Event()
garbage.itself, died = garbage, weakref.ref(garbage)
del garbage
stop = trim_regularly(0.05, collects=True)
ends_at = time.monotonic() + 60
while (died() or resident() - start > kept / 4) and time.monotonic() < ends_at:
    time.sleep(0.05)
stop()
print(kept >> 20, (resident() - start) >> 20, int(died() is None))
"""


def test_this_machine_has_memory() -> None:
    assert available_memory() > 1 << 20


def test_garbage_is_collected_at_once() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    try:
        node = weakref.ref(Node())
        assert node() is not None
        give_back_freed()
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="needs glibc and /proc"
)
def test_memory_between_what_is_kept_goes_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    kept, left, is_collected = map(int, done.stdout.split())
    assert is_collected
    assert kept > 90
    assert left < 20
