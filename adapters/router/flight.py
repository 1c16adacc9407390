"""One call on its way: sent to a replica, and to another one where that ends before it answers.

Whatever happens, its mailbox ends exactly once. A call of which a piece has been delivered is not
sent again: it ends in EngineDied, which says so.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from ...core.api.protocol import (
    BackendClosed,
    Call,
    CallFailed,
    Chunk,
    Completion,
    DeadlineExceeded,
    EngineDied,
    Output,
    Overloaded,
    Reply,
)
from ...core.api.reply import Mailbox
from .policies import Request
from .replica import Replica

Take: TypeAlias = Callable[[Sequence[Chunk]], object]
MOST_SENDS = 4  # of one call: what ends replica after replica may be the call itself
MOST_REFUSALS = 16  # of replicas that have ended already, in a row, before it waits


class Dispatcher(Protocol):
    """What a flight needs of its router."""

    is_closed: bool

    def assign(self, flight: Flight) -> Replica | None:
        """The replica to send it to, which has one more open call now; None: there is none."""

    def land(self, flight: Flight, replica: Replica, end: Completion | BaseException) -> None:
        """The call has ended at a replica, which has one open call less."""

    def wait(self, flight: Flight) -> bool:
        """Hold a call for which there is no replica now; False where none may come back."""

    def has_others(self, avoided: int) -> bool:
        """Whether a replica takes calls that is not of this set."""

    def end(self, flight: Flight) -> None:
        """The call has ended."""


class Flight:
    """A call, its mailbox, and where it is now.

    avoided: bits of the replicas that failed it. waiting_since: when it came to be held; None: it
    is not.
    """

    def __init__(self, router: Dispatcher, call: Call, request: Request) -> None:
        self.call = call
        self.request = request
        self.mailbox = Mailbox(call, lambda _: self.cancel())
        self.avoided = 0
        self.waiting_since: float | None = None
        self.num_sends = self._num_refusals = 0
        self._router = router
        self._lock = threading.Lock()
        self._inner: Reply | None = None
        self._has_streamed = self._is_cancelled = False

    def send(self) -> None:
        """Send it to a replica, or have it wait for one."""
        if self._is_over():
            return
        replica = self._router.assign(self) if self._num_refusals < MOST_REFUSALS else None
        if replica is None:
            self._num_refusals = 0
            if not self._router.wait(self):
                self.fail(self._nowhere())
            return
        self.num_sends += 1
        inner = self._submitted(replica)
        if inner.done() and inner.error() is not None:  # it was not taken
            self.num_sends -= 1
            self._num_refusals += 1
        with self._lock:
            self._inner = inner
        take = self._take if self.call.stream is True else None
        _listen(inner, take, lambda reply: self._landed(replica, reply))
        if self._is_cancelled:  # before the replica had it
            inner.cancel()

    def cancel(self) -> None:
        """End it early."""
        with self._lock:
            self._is_cancelled = True
            inner, is_held = self._inner, self.waiting_since is not None
        if inner is not None and not is_held:
            inner.cancel()
        elif is_held:
            self._finish(aborted(self.call))

    def fail(self, error: BaseException) -> None:
        """End it in this error."""
        self.mailbox.fail(error)
        self._router.end(self)

    def abandon(self, error: BaseException) -> None:
        """End it in this error wherever it is."""
        with self._lock:
            self._is_cancelled, inner = True, self._inner
        self.fail(error)
        if inner is not None:
            inner.cancel()

    def give_up(self, seconds: float) -> None:
        """End a call that has waited for a replica for so long."""
        text = f"no replica could take the call within patience={seconds:g} s, and none can now"
        self.fail(EngineDied(text, is_replaced=True))

    def _finish(self, completion: Completion) -> None:
        self.mailbox.finish(completion)
        self._router.end(self)

    def _is_over(self) -> bool:
        """Whether it needs no replica any more; then it is ended."""
        left = self._seconds_left()
        if self.mailbox.done():
            return True
        if self._is_cancelled:
            self._finish(aborted(self.call))
        elif self._router.is_closed:
            self.fail(BackendClosed.before() if not self.num_sends else BackendClosed.meanwhile())
        elif left is not None and left <= 0:
            self.fail(
                DeadlineExceeded(f"the call did not end within deadline={self.call.deadline} s")
            )
        else:
            return False
        return True

    def _seconds_left(self) -> float | None:
        deadline = self.call.deadline
        if not isinstance(deadline, int | float):
            return None
        return deadline - (time.monotonic() - self.mailbox.submitted)

    def _submitted(self, replica: Replica) -> Reply:
        call, left = self.call, self._seconds_left()
        if self.num_sends > 1 and left is not None:
            call = replace(call, deadline=left)
        try:
            return replica.backend.submit(call)
        except Exception as error:  # of a backend that does not keep the protocol
            reply = Mailbox(call)
            failure = CallFailed(
                f"the replica {replica.name} did not take the call: {error!r:.200}"
            )
            failure.__cause__ = error
            reply.fail(failure)
            return reply

    def _take(self, chunks: Sequence[Chunk]) -> None:
        self._has_streamed = True
        for chunk in chunks:
            self.mailbox.put(chunk)

    def _landed(self, replica: Replica, reply: Reply) -> None:
        error = reply.error()
        if error is None:
            completion = reply.result(0)
            self._router.land(self, replica, completion)
            self._finish(completion)
            return
        self._router.land(self, replica, error)
        if self._router.is_closed or not isinstance(error, BackendClosed | Overloaded):
            self.fail(error)
        elif self._has_streamed:
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

    def _nowhere(self) -> BackendClosed:
        text = "no replica can take the call: all have ended or are being drained"
        return EngineDied(text) if self.num_sends else BackendClosed(text)


def aborted(call: Call) -> Completion:
    """The completion of a call that was cancelled before it began."""
    if call.options:
        return Completion()
    return Completion(tuple(Output("", (), "abort") for _ in range(call.sampling.n)))


def _broken_off(replica: Replica, error: BaseException) -> EngineDied:
    failure = EngineDied(
        f"the replica {replica.name} ended after a part of the answer had been delivered, so the"
        f" call was not sent to another one ({error}); expected a new call",
        is_replaced=True,
    )
    failure.__cause__ = error
    return failure


def _listen(reply: Reply, take: Take | None, end: Callable[[Reply], object]) -> None:
    """Have a reply's chunks taken as they come, and its end after them: in its producer's thread,
    or in one of their own where it cannot do that. take: None for no chunks."""
    follow = getattr(reply, "follow", None)
    if take is None or follow is not None:
        if take is not None and follow is not None:
            follow(take)
        reply.when_done(end)
        return

    def read() -> None:
        with contextlib.suppress(Exception):  # its end has it
            for chunk in reply:
                take((chunk,))
        reply.when_done(end)

    threading.Thread(target=read, name="forkroot-router-reader", daemon=True).start()
