"""A call on its way to a replica, and its answer on its way back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from .flight import Dispatcher, Flight
from .policies import Request
from .replica import Replica

Take: TypeAlias = Callable[[Sequence[Chunk]], object]


class CallFlight(Flight):
    """A call, and the mailbox that its caller reads."""

    def __init__(self, router: Dispatcher, call: Call, request: Request) -> None:
        super().__init__(router, request, call.deadline)
        self.call = call
        self.mailbox = Mailbox(call, lambda _: self.cancel())
        self._inner: Reply | None = None

    @property
    def is_done(self) -> bool:
        """As `Flight.is_done`."""
        return self.mailbox.done()

    def _send_to(self, replica: Replica) -> None:
        inner = self._submitted(replica)
        if inner.done() and inner.error() is not None:  # it was not taken
            self.num_sends -= 1
            self.num_refusals += 1
        with self._lock:
            self._inner = inner
        take = self._take if self.call.stream is True else None
        _listen(inner, take, lambda reply: self._landed(replica, reply))
        if self._is_cancelled:  # before the replica had it
            inner.cancel()

    def _stop(self) -> None:
        if self._inner is not None:
            self._inner.cancel()

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

    def _take(self, chunks: Sequence[Chunk]) -> None:
        self.has_streamed = True
        for chunk in chunks:
            self.mailbox.put(chunk)

    def _landed(self, replica: Replica, reply: Reply) -> None:
        error = reply.error()
        if error is not None:
            self._failed(replica, error)
            return
        completion = reply.result(0)
        self._router.land(self, replica, completion)
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
