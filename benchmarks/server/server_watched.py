"""`forkroot` with a window: at SIGUSR1 it prints the names of the asyncio tasks at work, as JSON.

Nothing else differs from `python -m forkroot`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from types import FrameType

from forkroot.__main__ import main


def print_tasks(number: int, frame: FrameType | None) -> None:
    """Name the tasks of every loop that have not ended."""
    found = [it for it in gc.get_objects() if type(it) is asyncio.Task and not it.done()]
    names = sorted(getattr(it.get_coro(), "__qualname__", "?") for it in found)
    print(json.dumps(names), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, print_tasks)
    sys.exit(main())
