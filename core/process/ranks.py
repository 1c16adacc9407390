"""Starts, monitors and stops the processes of the other tensor-parallel ranks of a model.

Each runs `core.rank`. They end when this process closes them or is gone. A rank that dies is
noticed at once, one that hangs (see `core.process.liveness`) after a timeout; the others are then
killed, too.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..api.config import EngineConfig
from ..api.owner import Owner
from ..api.protocol import BackendClosed
from .ipc import Child
from .launch import start_rank
from .liveness import TIMEOUT, LivenessMonitor, checks

SECONDS_TO_START = 600.0
_SECONDS_TO_CLOSE = 5.0
_MAX_MISSED = 3  # checks without a heartbeat, after which a rank counts as silent
_DEVICE_FACTOR = 10

T = TypeVar("T")
Report: TypeAlias = Callable[[], tuple[int, int, int, bool]]


class Heartbeat(NamedTuple):
    """Progress of a rank: batches started and done, collectives that have ended, and whether it
    waits for other ranks now (rank 0: or for the device)."""

    num_started: int = 0
    num_done: int = 0
    num_collectives: int = 0
    is_waiting: bool = False


class RankStatus:
    """What is known of one of the ranks after the first. `receive` may be called in any thread."""

    def __init__(self, rank: int, liveness: LivenessMonitor) -> None:
        self.rank = rank
        self.liveness = liveness
        self.heartbeat = Heartbeat()
        self.has_reported = False  # since the last check
        self._num_received = self._num_seen = self._num_missed = 0

    def receive(self, heartbeat: Heartbeat) -> None:
        """Take a heartbeat of this rank."""
        self.heartbeat = heartbeat
        self._num_received += 1

    def check(self) -> None:
        """Note whether a heartbeat came since the last check."""
        self.has_reported = self._num_received > self._num_seen
        self._num_seen = self._num_received
        self._num_missed = 0 if self.has_reported else self._num_missed + 1

    @property
    def is_reporting(self) -> bool:
        """Whether heartbeats still come."""
        return self._num_missed < _MAX_MISSED

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for other ranks, and heartbeats still come."""
        return self.heartbeat.is_waiting and self.is_reporting


class RankMonitor:
    """Finds ranks that hang. timeout: seconds without a sign of life after which a rank hangs.
    has_device: the ranks compute on devices, which cannot be observed: the timeout is ten times as
    long for a rank whose heartbeats still come."""

    def __init__(self, ranks: Sequence[RankStatus], timeout: float, has_device: bool) -> None:
        self._ranks = ranks
        self._timeout = timeout
        self._has_device = has_device
        self._first = Heartbeat()  # of rank 0, at the last check
        self._stuck = 0.0  # seconds for which rank 0 has waited although all others are done

    def check(self, seconds: float, first: Heartbeat) -> str | None:
        """After `seconds` since the last check: which rank hangs, in words, or None. first: the
        progress of rank 0.

        A rank that has done all batches has nothing to do. One that waits for others is excused
        while one of these does not wait: that one is slow, or hangs itself.
        """
        for rank in self._ranks:
            rank.check()
        busy = [rank for rank in self._ranks if rank.heartbeat.num_done < first.num_started]
        is_first_busy = first.num_done < first.num_started
        is_one_at_work = is_first_busy and not first.is_waiting
        is_one_at_work |= any(not rank.is_waiting for rank in busy)
        for rank in self._ranks:
            is_excused = rank not in busy or (rank.is_waiting and is_one_at_work)
            rank.liveness.update(seconds, rank.heartbeat, is_excused, rank.has_reported)
            if fault := rank.liveness.fault(self._factor(rank.is_reporting)):
                return f"rank {rank.rank} of the model hangs: {fault}"
        is_stuck = is_first_busy and first.is_waiting and not busy and first == self._first
        self._stuck = self._stuck + seconds if is_stuck else 0.0
        self._first = first
        if self._stuck >= self._timeout * self._factor(is_reporting=True):
            return f"rank 0 of the model has waited {self._stuck:.1f} s for what no rank does"
        return None

    def _factor(self, is_reporting: bool) -> float:
        return _DEVICE_FACTOR if self._has_device and is_reporting else 1


class Other(NamedTuple):
    """One of the other ranks: its process and its status."""

    child: Child
    status: RankStatus


class OtherRanks:
    """Ranks 1 to `config.ranks` - 1 of a model on this machine.

    source: of the model: a folder, or a dummy's name. config: with every size set. Its
      `hang_timeout` is that of `RankMonitor`.
    started: their processes; those that are missing are started here.
    """

    def __init__(self, source: str, config: EngineConfig, started: Sequence[Child] = ()) -> None:
        self._owner = Owner()
        self._config = config
        self._folder = tempfile.TemporaryDirectory(prefix="forkroot-ranks-")
        self.store_path = str(Path(self._folder.name) / "store")
        self._reports: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._error: BackendClosed | None = None  # why the first one is gone
        self._failure: Exception | None = None  # that a rank reported, which then ends
        self._when_gone: list[Callable[[], object]] = []
        self._out_of_memory: set[int] = set()
        self._lock = threading.Lock()
        self._is_closing = False
        self._has_ended = threading.Event()
        self._report: Report | None = None
        self._others: list[Other] = []
        sent: Future[None] = Future()
        threading.Thread(
            target=self._run, args=(source, started, sent), name="forkroot-ranks", daemon=True
        ).start()
        sent.result()

    def wait(self, state: str) -> None:
        """Wait until every rank has reported this state ("loading", "ready"). Raises the error of a
        rank that failed, BackendClosed where one has died."""
        for _ in self._others:
            try:
                reported, error = self._reports.get(timeout=SECONDS_TO_START)
            except queue.Empty:
                reported, error = "failed", BackendClosed("a rank of the model does not start")
            if reported != state:
                self.close()
                raise error

    def send(self, message: Any) -> None:
        """Send a batch to every rank."""
        for other in self._others:
            other.child.connection.send("batch", message)

    def check(self) -> None:
        """Raise BackendClosed where a rank is gone."""
        if self._error is not None:
            raise BackendClosed(*self._error.args)

    def is_out_of_memory(self, number: int) -> bool:
        """Whether a rank had too little memory for the batch of this number."""
        return number in self._out_of_memory

    def watch(self, report: Report) -> None:
        """From now on a rank that hangs counts as gone. report: gives the progress of rank 0, as a
        `Heartbeat`."""
        self._report = report

    def when_gone(self, action: Callable[[], object]) -> None:
        """Call the action once when a rank is gone that was not closed: in another thread, or at
        once where one is gone already; after earlier actions."""
        with self._lock:
            self._when_gone.append(action)
            if self._error is None:
                return
        action()

    def unless_gone(self, action: Callable[[], T]) -> T:
        """What the action returns, which waits for all ranks; it runs in a thread of its own.
        Raises what it raises, and as soon as a rank is gone, the error that this rank reported, or
        BackendClosed."""
        future: Future[T] = Future()

        def run() -> None:
            with contextlib.suppress(InvalidStateError):  # a rank is gone
                try:
                    future.set_result(action())
                except Exception as error:
                    future.set_exception(error)

        def end() -> None:
            with contextlib.suppress(InvalidStateError):  # it has ended
                future.set_exception(self._failure or BackendClosed(str(self._error)))

        threading.Thread(target=run, daemon=True).start()
        self.when_gone(end)
        return future.result()

    def forget_store(self) -> None:
        """Remove the folder in which ranks find each other: all have."""
        self._folder.cleanup()

    def close(self) -> None:
        """Stop the ranks. Does nothing in a fork of this process."""
        if not self._owner.is_here:
            return
        self._is_closing = True
        for other in self._others:
            other.child.connection.send("close", None)
            other.child.connection.close()
        for other in self._others:
            process = other.child.process
            try:
                process.wait(_SECONDS_TO_CLOSE if self._error is None else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._has_ended.set()
        with contextlib.suppress(OSError):
            self._folder.cleanup()

    # --- in threads of their own -----------------------------------------------------------------

    def _run(self, source: str, started: Sequence[Child], sent: Future[None]) -> None:
        """Start the ranks and monitor them. The kernel kills them when this thread ends, and so
        with this process, however that ends."""
        config, timeout = self._config, self._config.hang_timeout
        try:
            for rank in range(1, config.ranks):
                is_started = rank <= len(started)
                child = started[rank - 1] if is_started else start_rank(config.device)
                liveness = LivenessMonitor(child.process.pid, timeout or TIMEOUT)
                other = Other(child, RankStatus(rank, liveness))
                self._others.append(other)
                child.connection.send(rank, source, asdict(config), self.store_path)
                threading.Thread(target=self._listen, args=(other,), daemon=True).start()
        except BaseException as error:
            sent.set_exception(error)
            self.close()
            return
        sent.set_result(None)
        if timeout is not None:
            statuses = [other.status for other in self._others]
            monitor = RankMonitor(statuses, timeout, config.device.startswith("cuda"))
            for seconds in checks(self._has_ended, timeout):
                if self._error is not None:
                    break
                report = self._report  # None: they are being loaded
                if fault := monitor.check(seconds, Heartbeat(*report()) if report else Heartbeat()):
                    self._fail(BackendClosed(fault))
        self._has_ended.wait()

    def _listen(self, other: Other) -> None:
        with contextlib.suppress(Exception):  # invalid messages: treated as a dead rank
            for kind, *values in other.child.connection.messages():
                if kind == "heartbeat":
                    other.status.receive(Heartbeat(*values))
                elif kind == "out of memory":
                    self._out_of_memory.add(*values)
                    other.child.connection.send("acknowledged", None)
                else:
                    if kind == "failed":
                        self._failure = values[0]
                    self._reports.put((kind, values[0] if values else None))
        error = BackendClosed(f"rank {other.status.rank} of the model has died")
        self._reports.put(("died", error))
        self._fail(error)

    def _fail(self, error: BackendClosed) -> None:
        """A rank is gone that was not closed: kill the others, which are useless without it."""
        with self._lock:
            if self._is_closing or self._error is not None:
                return
            self._error = error
            actions = list(self._when_gone)
        for other in self._others:
            other.child.process.kill()
        for action in actions:
            action()
