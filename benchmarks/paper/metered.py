"""A backend that measures its calls: seconds to the first text, and to the end."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from forkroot.adapters.connection import Lent
from forkroot.core.api.protocol import Backend, Call, Reply

NUM_WATCHERS = 128


class Metered(Lent):
    """As the backend; generating calls are streamed.

    firsts, totals: seconds from a call's submission to its first text, and to its end.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._watchers = ThreadPoolExecutor(NUM_WATCHERS)
        self.firsts: list[float] = []
        self.totals: list[float] = []

    def submit(self, call: Call) -> Reply:
        """As the backend's own."""
        if call.options or call.sampling.max_tokens == 0:
            return super().submit(call)
        started = time.perf_counter()
        reply = super().submit(replace(call, stream=True))
        self._watchers.submit(self._watch, reply, started)
        reply.when_done(lambda _: self.totals.append(time.perf_counter() - started))
        return reply

    def end(self) -> None:
        """Wait until all calls are counted."""
        self._watchers.shutdown()

    def _watch(self, reply: Reply, started: float) -> None:
        next(iter(reply), None)
        self.firsts.append(time.perf_counter() - started)
