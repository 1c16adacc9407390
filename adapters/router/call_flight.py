"""A call on its way to a replica, and its answer on its way back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ...core.api.protocol import (
    Call,
    CallFailed,
    Chunk,
    Completion,
    Output,
    Reply,
)
from ...core.api.reply import Mailbox
from .flight import Dispatcher, Flight, Leg
from .policies import Request
from .replica import Replica

Take: TypeAlias = Callable[[Sequence[Chunk]], object]


class CallFlight(Flight):
    """A call, and the mailbox that its caller reads."""

    def __init__(self, router: Dispatcher, call: Call, request: Request) -> None:
        super().__init__(router, request, call.deadline)
        self.call = call
        self.mailbox = Mailbox(call, lambda _: self.cancel())

    @property
    def is_done(self) -> bool:
        """As `Flight.is_done`."""
        return self.mailbox.done()

    def _send_to(self, leg: Leg) -> None:
        inner = self._submitted(leg.replica)
        if inner.done() and inner.error() is not None:  # it was not taken
            self.num_sends -= 1
            self.num_refusals += 1
        leg.cancel = inner.cancel
        take = partial(self._take, leg) if self.call.stream is True else None
        _listen(inner, take, partial(self._landed, leg))
        if self._is_cancelled or leg.is_over:  # before the replica had it
            inner.cancel()

    def _end_early(self) -> None:
        self._finish(_aborted(self.call))

    def _deliver(self, error: BaseException) -> None:
        self.mailbox.fail(error)

    def _finish(self, completion: Completion) -> None:
        self.mailbox.finish(completion)
        self._router.end(self)

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

    def _take(self, leg: Leg, chunks: Sequence[Chunk]) -> None:
        if self._delivers(leg):
            for chunk in chunks:
                self.mailbox.put(chunk)

    def _landed(self, leg: Leg, reply: Reply) -> None:
        if not self._ends_leg(leg):
            return
        error = reply.error()
        if error is not None:
            self._failed(leg.replica, error)
            return
        completion = reply.result(0)
        self._router.land(self, leg.replica, completion)
        self._finish(completion)


def _aborted(call: Call) -> Completion:
    """The completion of a call that was cancelled before it began."""
    if call.options:
        return Completion()
    return Completion(tuple(Output("", (), "abort") for _ in range(call.sampling.n)))


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
