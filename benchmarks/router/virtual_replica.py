"""Replicas in virtual time: the real radix cache, and a model of how long an engine takes.

A replica computes one prompt at a time, as much of it as is not cached, or decodes all that it runs
a few steps at a time. Answers are a function of the prompt, as greedy ones are.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from forkroot.core.api.protocol import (
    BackendInfo,
    Call,
    Completion,
    EngineDied,
    OptionScore,
    Output,
    Reply,
    Tokens,
    Usage,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.radix.cache import Lease, RadixCache

VOCABULARY = 32_000
OPTION_LEN = 8  # tokens of an option
_STEPS = 8  # of decoding before new calls are looked at


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a replica takes: for a token of a prompt, for a step, and for each sequence in
    it. By default about those of an 8B model on one large GPU."""

    token: float = 18e-6
    step: float = 3.5e-3
    sequence: float = 30e-6
    max_running: int = 64


class Clock:
    """Virtual time: what happens next, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do this so many seconds later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), action))

    def advance(self) -> None:
        """Let the next thing happen."""
        self.now, _, action = heapq.heappop(self._events)
        action()


@dataclass(slots=True, eq=False)
class Job:
    """A call that runs. expected: tokens that its router expected to be cached."""

    call: Call
    mailbox: Mailbox
    ids: Any
    expected: int = 0
    lease: Lease | None = None
    slots: Any = None
    cached: int = 0
    answer: Any = None


@dataclass(slots=True)
class Totals:
    """What all replicas of a run did together, in tokens. prefilled: computed of prompts.
    stale: expected by the router, and not cached. ends: virtual time and work of each call's end.
    """

    prompt: int = 0
    prefilled: int = 0
    expected: int = 0
    stale: int = 0
    ends: list[tuple[float, int]] = field(default_factory=list)


class Arrays:
    """Prompts as arrays. A prompt is looked at by several in a row: the last one is kept."""

    def __init__(self) -> None:
        self._last: tuple[Any, Any] = (), np.zeros(0, np.int32)

    def of(self, prompt: Any) -> Any:
        """The tokens of a prompt that is tokens already; not to be written to."""
        (segment,) = prompt
        assert isinstance(segment, Tokens)
        if self._last[0] is not segment.ids:
            self._last = segment.ids, np.array(segment.ids, np.int32)
        return self._last[1]


class VirtualReplica:
    """A replica as a `Backend`. expected: what the router expects of the call that it sends now."""

    def __init__(
        self,
        clock: Clock,
        totals: Totals,
        num_slots: int,
        costs: Costs = Costs(),
        expected: Callable[[], int] = lambda: 0,
        arrays: Arrays | None = None,
    ) -> None:
        self._arrays = arrays or Arrays()
        self._clock, self._totals, self._costs = clock, totals, costs
        self._cache = RadixCache(num_slots)
        self._expected = expected
        self._waiting: deque[Job] = deque()
        self._running: list[tuple[int, int, Job]] = []
        self._numbers = count()
        self._num_steps = 0
        self._is_at_work = self.is_dead = False
        self.busy = 0.0
        self.num_calls = 0

    def submit(self, call: Call) -> Mailbox:
        """Take a call."""
        mailbox = Mailbox(call, self.cancel)
        if self.is_dead:
            mailbox.fail(EngineDied("the virtual replica is dead", is_replaced=True))
            return mailbox
        ids = self._arrays.of(call.prompt)
        self._waiting.append(Job(call, mailbox, ids, self._expected()))
        self.num_calls += 1
        if not self._is_at_work:
            self._is_at_work = True
            self._clock.after(0.0, self._next)
        return mailbox

    @property
    def num_evicted(self) -> int:
        """Tokens that its cache has evicted."""
        return self._cache.num_evicted

    def cancel(self, reply: Reply) -> None:
        """Nothing in these runs is cancelled."""

    def info(self) -> BackendInfo:
        """A model of that name."""
        return BackendInfo("virtual", 1 << 20, VOCABULARY, frozenset({"tokens", "options"}))

    def close(self) -> None:
        """Nothing to stop."""

    def evictions(self, after: int = -1) -> Any:
        """As engines report them."""
        return self._cache.evictions(after)

    def prefixes(self, count: int = 1000) -> Any:
        """As engines report them."""
        return self._cache.prefixes(count)

    def die(self) -> None:
        """End all calls, as an engine that is killed."""
        self.is_dead = True
        jobs = [*self._waiting, *(job for _, _, job in self._running)]
        self._waiting.clear()
        self._running.clear()
        for job in jobs:
            job.mailbox.fail(EngineDied("the virtual replica was killed", is_replaced=True))

    def _next(self) -> None:
        """Begin what comes next."""
        if self.is_dead:
            return
        if self._waiting and len(self._running) < self._costs.max_running:
            job = self._waiting[0]
            if self._admits(job):
                self._waiting.popleft()
                num_new = len(job.ids) - job.cached + OPTION_LEN * len(job.call.options)
                self._spend(num_new * self._costs.token, lambda: self._prefilled(job))
                return
            assert self._running, "a call does not fit an empty replica"
        if not self._running:
            self._is_at_work = False
            return
        steps = min(_STEPS, max(1, self._running[0][0] - self._num_steps))
        seconds = self._costs.step + self._costs.sequence * len(self._running)
        self._spend(steps * seconds, lambda: self._decoded(steps))

    def _spend(self, seconds: float, then: Callable[[], None]) -> None:
        self.busy += seconds
        self._clock.after(seconds, then)

    def _admits(self, job: Job) -> bool:
        """Whether there is room; then it has its slots."""
        lease = self._cache.acquire("", job.ids, len(job.ids) - 1)
        num_new = 0 if job.call.options else (job.call.sampling.max_tokens or 0)
        slots = self._cache.allocate(len(job.ids) - lease.length + num_new)
        if slots is None:
            self._cache.release(lease)
            return False
        job.lease, job.slots, job.cached = lease, slots, lease.length
        totals = self._totals
        totals.prompt += 0 if is_plant(job.call) else len(job.ids)
        totals.prefilled += len(job.ids) - lease.length
        totals.expected += job.expected
        totals.stale += max(0, min(job.expected, len(job.ids) - 1) - lease.length)
        return True

    def _prefilled(self, job: Job) -> None:
        if self.is_dead:
            job.mailbox.fail(EngineDied("the virtual replica was killed", is_replaced=True))
            return
        assert job.lease is not None
        num_new = len(job.ids) - job.lease.length
        own, job.slots = job.slots[:num_new], job.slots[num_new:]
        self._cache.commit(job.lease, job.ids, np.concatenate([job.lease.slots, own]))
        length = len(job.slots)
        if length <= 1:
            self._end(job)
        else:
            end = self._num_steps + length - 1
            heapq.heappush(self._running, (end, next(self._numbers), job))
        self._next()

    def _decoded(self, steps: int) -> None:
        self._num_steps += steps
        while self._running and self._running[0][0] <= self._num_steps:
            self._end(heapq.heappop(self._running)[-1])
        self._next()

    def _end(self, job: Job) -> None:
        assert job.lease is not None
        length = len(job.slots)
        completion, answer = answer_to(job.call, job.ids, length, job.cached)
        if length > 1:
            whole = np.concatenate([job.ids, answer[:-1]])
            slots = np.concatenate([job.lease.slots, job.slots[:-1]])
            self._cache.commit(job.lease, whole, slots)
        self._cache.free(job.slots[max(0, length - 1) :])
        self._cache.release(job.lease)
        work = len(job.ids) + length
        if not is_plant(job.call):
            self._totals.ends.append((self._clock.now, work))
        job.mailbox.finish(completion)


def is_plant(call: Call) -> bool:
    """Whether a call only computes its prompt."""
    return call.sampling.max_tokens == 0 and not call.options


def answer_to(call: Call, ids: Any, length: int, cached: int) -> tuple[Completion, Any]:
    """The answer of these many tokens to a prompt."""
    usage = Usage(len(ids), cached, length)
    if call.options:
        best = hash(ids.tobytes()) % len(call.options) if len(ids) else 0
        scores = tuple(
            OptionScore(text, tuple(range(OPTION_LEN)), (-1.0 - (index != best),))
            for index, text in enumerate(call.options)
        )
        return Completion((), usage, scores), np.zeros(0, np.int32)
    seed = (int(ids[-32:].astype(np.int64).sum()) * 31 + len(ids)) % 7919
    answer = (np.arange(length, dtype=np.int64) * 104_729 + seed * 7_919) % (VOCABULARY - 256) + 256
    answer = answer.astype(np.int32)
    return Completion((Output("", tuple(answer.tolist()), "length"),), usage), answer
