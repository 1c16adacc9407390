"""Starts, watches and stops the processes that hold the other parts of a model (tensor
parallelism).

Each runs `core.rank`. They end when this process closes them or is gone. One that is gone itself is
noticed at once, one that hangs (see `core.process.watch`) within so many seconds; the others are
then ended, too, whether they are stopped or not.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..api.owner import Owner
from ..api.protocol import BackendClosed
from . import watch
from .beats import Beat, Pulse, Vigil
from .frames import Child, spawn

SECONDS_TO_START = 600.0
_SECONDS_TO_CLOSE = 5.0

Told: TypeAlias = Callable[[], tuple[int, int, int, bool]]


class Other(NamedTuple):
    """One of the other ranks: its process, and what is known of it."""

    child: Child
    pulse: Pulse


class OtherRanks:
    """Ranks 1 to `size` - 1 of a model on this machine.

    described: what `core.rank` is to load: folder or dummy, dtype, device, context length, slots.
    patience: seconds without a sign of life after which a rank hangs, see `core.process.watch` and
      `core.process.beats`; None: it may.
    """

    def __init__(self, size: int, *described: Any, patience: float | None = watch.SECONDS) -> None:
        self._owner = Owner()
        self._patience = patience
        self._is_far = str(described[2]).startswith("cuda")
        self._room = tempfile.TemporaryDirectory(prefix="forkroot-ranks-")
        self.meeting_place = str(Path(self._room.name) / "store")
        self._news: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._dead: BackendClosed | None = None  # why the first one is gone
        self._when_gone: Callable[[], None] = _nothing
        self._short: set[int] = set()
        self._gate = threading.Lock()
        self._is_closing = False
        self._has_ended = threading.Event()
        self._told: Told | None = None
        self._others: list[Other] = []
        between = None if patience is None else patience / watch.LOOKS
        started: Future[None] = Future()
        given = (size, (*described, self.meeting_place, between), started)
        threading.Thread(target=self._keep, args=given, name="forkroot-ranks", daemon=True).start()
        started.result()

    def wait(self, news: str) -> None:
        """Until every rank has said this ("loading", "ready"). Raises what one of them failed of,
        BackendClosed where one has died."""
        for _ in self._others:
            try:
                told, error = self._news.get(timeout=SECONDS_TO_START)
            except queue.Empty:
                told, error = "failed", BackendClosed("a rank of the model does not start")
            if told != news:
                self.close()
                raise error

    def show(self, message: Any) -> None:
        """Give every rank a batch."""
        for other in self._others:
            other.child.line.send("batch", message)

    def check(self) -> None:
        """Raise BackendClosed where a rank is gone."""
        if self._dead is not None:
            raise BackendClosed(*self._dead.args)

    def is_short(self, number: int) -> bool:
        """Whether the memory of a rank did not do for the batch of this number."""
        return number in self._short

    def watch(self, told: Told) -> None:
        """From now on a rank that hangs is gone. told: how far rank 0 is, as a `Beat`."""
        self._told = told

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
        if not self._owner.is_here:
            return
        self._is_closing = True
        for other in self._others:
            other.child.line.send("close", None)
            other.child.line.close()
        for other in self._others:
            process = other.child.process
            try:
                process.wait(_SECONDS_TO_CLOSE if self._dead is None else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._has_ended.set()
        with contextlib.suppress(OSError):
            self._room.cleanup()

    # --- in threads of their own -----------------------------------------------------------------

    def _keep(self, size: int, described: tuple[Any, ...], started: Future[None]) -> None:
        """Start the ranks and watch them. The kernel ends them when this thread ends, and so with
        this process, whatever becomes of it."""
        try:
            for rank in range(1, size):
                child = spawn(f"{(__package__ or '').rpartition('.')[0]}.rank")
                watched = watch.Watched(child.process.pid, self._patience or watch.SECONDS)
                other = Other(child, Pulse(rank, watched))
                self._others.append(other)
                child.line.send(rank, size, *described)
                threading.Thread(target=self._listen, args=(other,), daemon=True).start()
        except BaseException as error:
            started.set_exception(error)
            self.close()
            return
        started.set_result(None)
        if self._patience is not None:
            pulses = [other.pulse for other in self._others]
            self._watch(Vigil(pulses, self._patience, self._is_far), self._patience / watch.LOOKS)
        self._has_ended.wait()

    def _watch(self, vigil: Vigil, between: float) -> None:
        """Look after them, every so many seconds, until one is gone."""
        before = time.monotonic()
        while not self._has_ended.wait(between) and self._dead is None:
            now = time.monotonic()
            told = self._told
            fault = told and vigil.look(min(now - before, 2 * between), Beat(*told()))
            if fault:
                self._lose(BackendClosed(fault))
            before = now

    def _listen(self, other: Other) -> None:
        with contextlib.suppress(ValueError):  # a rank that talks nonsense is as good as dead
            for kind, *told in other.child.line.messages():
                if kind == "beat":
                    other.pulse.hear(Beat(*told))
                elif kind == "short":
                    self._short.add(*told)
                    other.child.line.send("known", None)
                else:
                    self._news.put((kind, told[0] if told else None))
        error = BackendClosed(f"rank {other.pulse.rank} of the model has died")
        self._news.put(("died", error))
        self._lose(error)

    def _lose(self, error: BackendClosed) -> None:
        """A rank is gone that was not told to: the others are of no use without it."""
        with self._gate:
            if self._is_closing or self._dead is not None:
                return
            self._dead = error
        for other in self._others:
            other.child.process.kill()
        self._when_gone()


def _nothing() -> None:
    """Nobody waits for the ranks yet."""
