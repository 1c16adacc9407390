"""Calls on their way to the engine: prepared, and held until their constraints are compiled and
their pictures decoded.

No thread waits for these. A call that is held ends at its deadline, which counts from its
submission, and when it is cancelled; a constraint that nobody waits for any more is not compiled,
and a picture not decoded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..api.protocol import (
    BackendClosed,
    Call,
    Completion,
    DeadlineExceeded,
    ForkrootError,
    Output,
    Overloaded,
    Reply,
)
from ..api.reply import Mailbox
from ..fsm.cache import GuideRequest
from .engine import Engine
from .inbox import Inbox
from .input import InputProcessor, Prepared
from .pictures.pool import PictureRequest
from .sequence import Job

T = TypeVar("T")


class PendingCalls:
    """Where calls come in, from any thread. closed: makes the error of one that comes too late.

    num_ended: calls that have ended since the start.
    """

    def __init__(
        self,
        processor: InputProcessor,
        engine: Engine,
        inbox: Inbox,
        closed: Callable[[], BackendClosed],
    ) -> None:
        self._processor = processor
        self._engine = engine
        self._inbox = inbox
        self._closed = closed
        self._jobs: dict[Reply, Job] = {}
        self._held: dict[Reply, float] = {}  # when they expire
        self._admitted: set[Job] = set()
        self._cancelled: set[Job] = set()  # before they were admitted
        self.num_ended = 0

    @property
    def num_open(self) -> int:
        """How many calls have not ended."""
        return len(self._jobs)

    @property
    def open(self) -> list[Mailbox]:
        """The calls that have not ended."""
        return [job.mailbox for job in list(self._jobs.values())]

    def take(self, call: Call, mailbox: Mailbox) -> None:
        """Take a call; it is checked and tokenized in this thread, where a small constraint is
        compiled, too. Errors go into its mailbox."""
        prepared = mailbox.prepared(lambda: self._processor.prepare(call, mailbox))
        if prepared is None:
            return
        prepared.job.arrived = mailbox.submitted
        self._jobs[mailbox] = prepared.job
        mailbox.when_done(self._forget)
        awaited = [it for it in prepared.awaited if not it.is_done]
        if not awaited:
            self._finish(prepared)
            return
        deadline = SECONDS_HELD if call.deadline is None else min(call.deadline, SECONDS_HELD)
        self._held[mailbox] = mailbox.submitted + deadline
        for request in awaited:
            mailbox.when_done(partial(_leave, request))
        self._finish_after(prepared, awaited)
        if not self._inbox.post(_wake):
            mailbox.fail(self._closed())

    def cancel(self, reply: Reply) -> None:
        """End a call early; its completion says "abort"."""
        job = self._jobs.get(reply)
        if job is None:
            return
        if self._held.pop(reply, _ABSENT) is not _ABSENT:
            job.mailbox.finish(aborted(job.call))
        else:
            self._inbox.post(lambda: self._abort(job))

    def expire(self) -> None:
        """End the calls that are held beyond their deadlines, or for too long."""
        now = time.monotonic()
        for reply, expires in list(self._held.items()):
            if expires <= now and (job := self._jobs.get(reply)):
                self._held.pop(reply, None)
                job.mailbox.fail(_expired(job.call))

    @property
    def has_deadline(self) -> bool:
        """Whether `expire` will have something to do."""
        return bool(self._held)

    def _finish_after(
        self, prepared: Prepared, awaited: list[GuideRequest | PictureRequest]
    ) -> None:
        """Finish a call once all of these are done."""
        if not awaited:
            self._finish(prepared)
        else:
            awaited[0].when_done(lambda: self._finish_after(prepared, awaited[1:]))

    def _finish(self, prepared: Prepared) -> None:
        """Hand a call over to the engine; what it waited for is there, or is not allowed."""
        mailbox = prepared.job.mailbox
        self._held.pop(mailbox, None)
        if mailbox.done():
            return
        job = mailbox.prepared(lambda: self._processor.finish(prepared))
        if job is not None and not self._inbox.post(lambda: self._admit(job), is_call=True):
            mailbox.fail(self._closed())

    def _admit(self, job: Job) -> None:
        if job in self._cancelled:
            job.mailbox.finish(aborted(job.call))
        elif not job.mailbox.done():
            self._admitted.add(job)
            self._engine.admit(job)

    def _abort(self, job: Job) -> None:
        if job in self._admitted:
            self._engine.abort(job)
        elif not job.mailbox.done():
            self._cancelled.add(job)

    def _forget(self, reply: Reply) -> None:
        job = self._jobs.pop(reply)
        self._held.pop(reply, None)
        if job in self._admitted:  # its sequences refer to it: all are freed without a collection
            job.sequences.clear()
        self._admitted.discard(job)
        self._cancelled.discard(job)
        self.num_ended += 1


_ABSENT = -1.0
SECONDS_HELD = 45.0  # of a call at most, whose own deadline may be later


def _expired(call: Call) -> ForkrootError:
    """The error of a call that was held until now."""
    what = "it waits for its constraint or its pictures"
    if call.deadline is not None and call.deadline <= SECONDS_HELD:
        return DeadlineExceeded(f"deadline={call.deadline} s is over: {what}")
    return Overloaded(f"{what}, behind others, for {SECONDS_HELD:g} s; try again later")


def aborted(call: Call) -> Completion:
    """The completion of a call that was cancelled before it began."""
    if call.options:
        return Completion()
    return Completion(tuple(Output("", (), "abort") for _ in range(call.sampling.n)))


def _leave(request: GuideRequest | PictureRequest, _: Reply) -> None:
    request.leave()


def _wake() -> None:
    """Wakes the engine's thread, which watches deadlines."""
