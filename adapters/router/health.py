"""Looks at every replica regularly: who has ended, who hangs, who came back, what was evicted.

A thread for each replica asks it, as the answer of one that hangs may never come, and one thread
for all draws the conclusions.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from ...core.api.protocol import BackendInfo, EngineDied, ForkrootError
from .fleet import Fleet
from .replica import Replica, State
from .reports import EvictionReader

_log = logging.getLogger(__name__)
_LONGEST_PAUSE = 60.0
_SWEPT_NODES = 2000  # under the lock at a time


class Watched(Protocol):
    """What the watch needs of its router."""

    def note_death(self, replica: Replica, error: BaseException) -> None:
        """A replica has ended."""

    def tick(self) -> None:
        """Time has passed, or something has changed."""


class Watch:
    """The looks at the replicas of one router, under its lock."""

    def __init__(
        self,
        router: Watched,
        fleet: Fleet,
        lock: threading.RLock,
        heartbeat: float,
        hang_timeout: float,
        evictions: EvictionReader,
    ) -> None:
        self.evictions = evictions
        self._router, self.fleet, self._lock = router, fleet, lock
        self._heartbeat, self._hang_timeout = heartbeat, hang_timeout
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forkroot-router", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; does not wait for answers of replicas."""
        self._is_stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def follow(self, replica: Replica) -> None:
        """Look at one more replica until it is removed."""
        name = f"forkroot-watch-{replica.name}"
        threading.Thread(target=self._ask, args=(replica,), name=name, daemon=True).start()

    def look(self) -> None:
        """Ask all replicas that are ready now, and take what they report."""
        with self._lock:
            ready = [it for it in self.fleet.replicas.values() if it.state is State.READY]
        for replica in ready:
            self._look_at(replica)

    # --- one thread for each replica -------------------------------------------------------------

    def _ask(self, replica: Replica) -> None:
        while not self._is_stopped.wait(self._heartbeat) and replica.state is not State.REMOVED:
            self._look_at(replica)

    def _look_at(self, replica: Replica) -> None:
        num_open = replica.num_open
        try:
            info = replica.backend.info()
        except Exception as error:
            with self._lock:
                replica.seen = time.monotonic()
                replica.may_return = not isinstance(error, EngineDied) or error.is_replaced
                if replica.state in (State.READY, State.HANGING) and not self._is_stopped.is_set():
                    _log.warning("the replica %s has ended: %s", replica.name, error)
                    self._router.note_death(replica, error)
            return
        self._note_answer(replica, info, num_open)
        if replica.state is State.READY:
            self._read_evictions(replica)

    def _read_evictions(self, replica: Replica) -> None:
        try:
            self.evictions.read(replica)
        except ForkrootError:
            pass  # the next look finds out what is wrong
        except Exception:  # whatever it reports, it is looked at again
            _log.exception("what the replica %s has evicted could not be read", replica.name)

    def _note_answer(self, replica: Replica, info: BackendInfo, num_open: int) -> None:
        with self._lock:
            replica.seen = time.monotonic()
            is_back = replica.state is State.HANGING
            is_back |= replica.state is State.DEAD and self._is_trusted(replica)
            if is_back:
                _log.warning("the replica %s takes calls again", replica.name)
                self.fleet.come_back(replica, info)
            self.fleet.note_info(replica, info, max(num_open, replica.num_open))

    def _is_trusted(self, replica: Replica) -> bool:
        """Whether a dead one that answers gets calls again: each time later, if it fails them."""
        pause: float = min(self._heartbeat * 2 ** (replica.num_failures - 1), _LONGEST_PAUSE)
        return time.monotonic() - replica.died >= pause

    # --- one thread for all ----------------------------------------------------------------------

    def _run(self) -> None:
        interval = min(self._heartbeat, self._hang_timeout) / 2
        while not self._is_stopped.wait(interval):
            try:
                self._leave_out_hanging()
                self.sweep()
                self._router.tick()
            except Exception:
                _log.exception("a look at the replicas failed")

    def _leave_out_hanging(self) -> None:
        now = time.monotonic()
        with self._lock:
            for replica in self.fleet.replicas.values():
                silent = now - replica.seen
                if replica.state is State.READY and silent > self._hang_timeout + self._heartbeat:
                    _log.warning("the replica %s has not answered for %.1f s", replica.name, silent)
                    text = f"it has not answered for {silent:.1f} s"
                    self.fleet.leave(replica, State.HANGING, text)

    def sweep(self) -> None:
        """Take the bits of replicas that have gone out of the whole tree, a part at a time."""
        is_done = False
        while not is_done and not self._is_stopped.is_set():
            with self._lock:
                is_done = self.fleet.sweep(_SWEPT_NODES)
