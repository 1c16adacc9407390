"""Starts the processes of an engine, all at once: its own, and those of its model's other ranks.

Each needs a second or more to load its code, most of it torch's: so the ranks are started before
their engine loads its own. A process then waits for its first message, and so it can be started
long before an engine needs it.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from importlib import import_module

from ..api.config import EngineConfig
from .ipc import Child, spawn

_CORE = (__package__ or "").rpartition(".")[0]
_PR_SET_PDEATHSIG = 1


def start_engine(config: EngineConfig) -> Child:
    """A process for the engine of this config (`core.child`), which has started its ranks."""
    return spawn(__name__, f"{_CORE}.child", config.device, str(config.ranks - 1))


def start_rank(device: str) -> Child:
    """A process for a rank (`core.rank`). The kernel kills it when the thread that started it ends,
    even while it is stopped."""
    return spawn(__name__, f"{_CORE}.rank", device, "0")


def main(fd: int, module: str, device: str, num_ranks: str) -> None:
    """In such a process: start what it needs, then load its code."""
    if module.endswith(".rank") and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ranks = [start_rank(device) for _ in range(int(num_ranks))]
    import_module(module).main(fd, device, *ranks)
