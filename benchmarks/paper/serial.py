"""A program without parallelism: its calls run one after another."""

from __future__ import annotations

import threading
from collections import deque

from forkroot.adapters.connection import Lent
from forkroot.core.api.protocol import Backend, Call, Chunk, Reply
from forkroot.core.api.reply import Mailbox


class Serial(Lent):
    """As the backend, for one run of a program: a call starts when the one before has ended."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._waiting: deque[Mailbox] = deque()
        self._is_busy = False
        self._gate = threading.Lock()

    def submit(self, call: Call) -> Mailbox:
        """Take a call; it starts after all that were taken before."""
        mailbox = Mailbox(call)
        with self._gate:
            self._waiting.append(mailbox)
        self._next()
        return mailbox

    def _next(self) -> None:
        with self._gate:
            if self._is_busy or not self._waiting:
                return
            self._is_busy = True
            mailbox = self._waiting.popleft()
        reply = self._backend.submit(mailbox.call)
        reply.when_done(lambda ended: self._end(ended, mailbox))

    def _end(self, reply: Reply, mailbox: Mailbox) -> None:
        error = reply.error()
        if error is not None:
            mailbox.fail(error)
        else:
            completion = reply.result()
            if completion.outputs:
                mailbox.put(Chunk(completion.text))
            mailbox.finish(completion)
        with self._gate:
            self._is_busy = False
        self._next()
