"""Starts and stops the processes that hold the other parts of a model (tensor parallelism).

Each runs `core.rank`. They end when this process closes them or is gone; one that is gone itself is
noticed by the next batch.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .frames import Child, spawn
from .protocol import BackendClosed

SECONDS_TO_START = 600.0
_SECONDS_TO_CLOSE = 5.0


class OtherRanks:
    """Ranks 1 to `size` - 1 of a model on this machine.

    described: what `core.rank` is to load: folder or dummy, dtype, device, context length, slots.
    """

    def __init__(self, size: int, *described: Any) -> None:
        self._owner = os.getpid()
        self._room = tempfile.TemporaryDirectory(prefix="forkroot-ranks-")
        self.meeting_place = str(Path(self._room.name) / "store")
        self._news: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._dead: int | None = None  # the first rank that was gone
        self._when_gone: Callable[[], None] = _nothing
        self._gate = threading.Lock()
        self._is_closing = False
        self._children: list[Child] = []
        for rank in range(1, size):
            child = spawn(f"{__name__.rpartition('.')[0]}.rank")
            self._children.append(child)
            child.line.send(*described, rank, size, self.meeting_place)
            threading.Thread(target=self._listen, args=(rank, child), daemon=True).start()

    def wait(self, news: str) -> None:
        """Until every rank has said this ("loading", "ready"). Raises what one of them failed of,
        BackendClosed where one has died."""
        for _ in self._children:
            try:
                told, error = self._news.get(timeout=SECONDS_TO_START)
            except queue.Empty:
                told, error = "failed", BackendClosed("a rank of the model does not start")
            if told != news:
                self.close()
                raise error

    def show(self, message: Any) -> None:
        """Give every rank a batch."""
        for child in self._children:
            child.line.send("batch", message)

    def check(self) -> None:
        """Raise BackendClosed where a rank is gone."""
        if self._dead is not None:
            raise _died(self._dead)

    def when_gone(self, action: Callable[[], None]) -> None:
        """Do this, once, when a rank is gone that was not told to: in a thread of its own, or at
        once where one is gone already. It replaces what was to be done."""
        with self._gate:
            self._when_gone = action
            if self._dead is None:
                return
        action()

    def close(self) -> None:
        """Stop them. Nothing in a fork of this process."""
        if os.getpid() != self._owner:
            return
        self._is_closing = True
        for child in self._children:
            child.line.send("close", None)
            child.line.close()
        for child in self._children:
            try:
                child.process.wait(_SECONDS_TO_CLOSE)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        with contextlib.suppress(OSError):
            self._room.cleanup()

    def _listen(self, rank: int, child: Child) -> None:
        for told, *error in child.line.messages():
            self._news.put((told, error[0] if error else None))
        self._news.put(("died", _died(rank)))
        with self._gate:
            is_first = self._dead is None
            self._dead = rank if is_first else self._dead
        if is_first and not self._is_closing:
            self._when_gone()


def _died(rank: int) -> BackendClosed:
    return BackendClosed(f"rank {rank} of the model has died")


def _nothing() -> None:
    """Nobody waits for the ranks yet."""
