"""What is on its way to a replica, and to another one where that ends before it answers.

Whatever happens, it ends exactly once. What has delivered a part is not sent again: it ends in
EngineDied, which says so.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ...core.api.protocol import (
    BackendClosed,
    CallFailed,
    Completion,
    DeadlineExceeded,
    EngineDied,
    Overloaded,
)
from .policies import Request
from .replica import Replica, State

End: TypeAlias = Completion | BaseException | None  # None: well, without a completion
MOST_SENDS = 4  # of one call: what ends replica after replica may be the call itself
MOST_REFUSALS = 16  # of replicas that have ended already, in a row, before it waits
GRACE = 1.0  # seconds after its deadline in which a replica may still answer a call


class Dispatcher(Protocol):
    """What a flight needs of its router."""

    is_closed: bool

    def assign(self, flight: Flight) -> Replica | None:
        """The replica to send it to, which has one more open call now; None: there is none."""

    def land(self, flight: Flight, replica: Replica, end: End) -> None:
        """It has ended at a replica, which has one open call less."""

    def wait(self, flight: Flight) -> bool:
        """Hold what no replica can take now; False where none may come back."""

    def has_others(self, avoided: int) -> bool:
        """Whether a replica takes calls that is not of this set."""

    def end(self, flight: Flight) -> None:
        """It has ended."""


def _nothing() -> None:
    pass


@dataclass(slots=True, eq=False)
class Leg:
    """One sending of a flight to a replica. cancel: ends it early there. is_over: it has ended, or
    the flight has left it: what still comes from there is ignored."""

    replica: Replica
    cancel: Callable[[], object] = _nothing
    is_over: bool = False


class Flight(ABC):
    """Something on its way, and where it is now.

    request: what it is placed by. deadline: seconds from now after which it ends by itself.
    work: where it is now, as its policy counts it. avoided: bits of the replicas that failed it.
    waiting_since: when it came to be held; None: it is not. has_streamed: a part has been
    delivered.
    """

    def __init__(self, router: Dispatcher, request: Request, deadline: float | None) -> None:
        self.request = request
        self.avoided = self.work = 0
        self.waiting_since: float | None = None
        self.num_sends = self.num_refusals = 0
        self.has_streamed = False
        self._router = router
        self._deadline = deadline
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._leg: Leg | None = None
        self._is_cancelled = False

    def send(self) -> None:
        """Send it to a replica, or have it wait for one."""
        if self._is_over():
            return
        replica = self._router.assign(self) if self.num_refusals < MOST_REFUSALS else None
        if replica is None:
            self.num_refusals = 0
            if not self._router.wait(self):
                self.fail(self._nowhere())
            return
        self.num_sends += 1
        leg = self._leg = Leg(replica)
        self._send_to(leg)

    @property
    def is_late(self) -> bool:
        """Whether its deadline is over, and its replica, if any has it, has not said so."""
        left = self._seconds_left()
        return left is not None and left < -GRACE

    def withdraw(self) -> None:
        """End it if it is late. Send it elsewhere if the replica that has it hangs, and nothing was
        delivered yet."""
        if self.is_late:
            self.abandon(self._too_late())
            return
        with self._lock:
            leg, is_last = self._leg, self.num_sends >= MOST_SENDS
            if leg is None or leg.is_over or self.has_streamed or self._is_cancelled or is_last:
                return
            if leg.replica.state is not State.HANGING:
                return
            leg.is_over = True
        leg.cancel()
        error = CallFailed(f"the replica {leg.replica.name} has not answered for some time")
        self._router.land(self, leg.replica, error)
        self.avoided |= leg.replica.bit
        self.send()

    def cancel(self) -> None:
        """End it early."""
        with self._lock:
            self._is_cancelled = True
            is_held = self.waiting_since is not None
        if is_held:
            self._end_early()
        else:
            self._stop()

    def fail(self, error: BaseException) -> None:
        """End it in this error."""
        self._deliver(error)
        self._router.end(self)

    def abandon(self, error: BaseException) -> None:
        """End it in this error wherever it is."""
        with self._lock:
            self._is_cancelled = True
        self.fail(error)
        self._stop()

    def waited(self, now: float) -> float:
        """Seconds for which it has been held."""
        return 0.0 if self.waiting_since is None else now - self.waiting_since

    def give_up(self, seconds: float) -> None:
        """End what has waited for a replica for so long."""
        text = f"no replica could take the call within patience={seconds:g} s, and none can now"
        self.fail(EngineDied(text, is_replaced=True))

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether it has ended for its caller."""

    @abstractmethod
    def _send_to(self, leg: Leg) -> None:
        """Send it to the leg's replica, and set the leg's `cancel`."""

    @abstractmethod
    def _end_early(self) -> None:
        """End what was cancelled before a replica had it."""

    @abstractmethod
    def _deliver(self, error: BaseException) -> None:
        """Tell the caller that it has ended in this error."""

    def _stop(self) -> None:
        """End it early where it is now, if it is anywhere."""
        if self._leg is not None:
            self._leg.cancel()

    def _delivers(self, leg: Leg) -> bool:
        """Whether a part that a leg brings is delivered; then no other leg follows."""
        with self._lock:
            self.has_streamed |= not leg.is_over
            return not leg.is_over

    def _ends_leg(self, leg: Leg) -> bool:
        """Whether this is the leg's end; it has only one."""
        with self._lock:
            is_first, leg.is_over = not leg.is_over, True
        return is_first

    def _failed(self, replica: Replica, error: BaseException) -> None:
        """It has ended at a replica in this error."""
        self._router.land(self, replica, error)
        if self._router.is_closed or not isinstance(error, BackendClosed | Overloaded):
            self.fail(error)
        elif self.has_streamed:
            self.fail(_broken_off(replica, error))
        elif self.num_sends >= MOST_SENDS:
            self.fail(error)
        else:
            self._send_elsewhere(replica, error)

    def _send_elsewhere(self, replica: Replica, error: BaseException) -> None:
        self.avoided |= replica.bit
        if isinstance(error, Overloaded) and not self._router.has_others(self.avoided):
            self.fail(error)
        else:
            self.send()

    def _is_over(self) -> bool:
        """Whether it needs no replica any more; then it is ended."""
        left = self._seconds_left()
        if self.is_done:
            return True
        if self._is_cancelled:
            self._end_early()
        elif self._router.is_closed:
            self.fail(BackendClosed.before() if not self.num_sends else BackendClosed.meanwhile())
        elif left is not None and left <= 0:
            self.fail(self._too_late())
        else:
            return False
        return True

    def _too_late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the call did not end within deadline={self._deadline} s")

    def _seconds_left(self) -> float | None:
        """Until its deadline; None: it has none, or one that its replica refuses."""
        if not isinstance(self._deadline, int | float) or not self._deadline > 0:
            return None
        return self._deadline - (time.monotonic() - self._start)

    def _nowhere(self) -> BackendClosed:
        text = "no replica can take the call: all have ended or are being drained"
        return EngineDied(text) if self.num_sends else BackendClosed(text)


def _broken_off(replica: Replica, error: BaseException) -> EngineDied:
    failure = EngineDied(
        f"the replica {replica.name} ended after a part of the answer had been delivered, so the"
        f" call was not sent to another one ({error}); expected a new call",
        is_replaced=True,
    )
    failure.__cause__ = error
    return failure
