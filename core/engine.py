"""The engine: admit, schedule, run, advance, emit.

One thread calls `step` in a loop; scheduler and runner are arguments, so that the whole of it runs
without a model in tests. Nothing here knows what a tensor, a framework or a file is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from .advance import Advancer
from .counters import Counters
from .forks import Roots
from .fsm.tokenizations import Tokenizations
from .model.batch import Answer, Batch, Outcome
from .protocol import (
    BackendClosed,
    CallFailed,
    CallTooLarge,
    Completion,
    DeadlineExceeded,
    ForkHint,
    ForkrootError,
    OptionScore,
    Overloaded,
    Text,
    TokenLogprob,
    Usage,
)
from .radix.cache import RadixCache
from .scheduler import Part, Scheduler
from .sequence import Ending, Job, Sequence

_NO_NUMBERS = "the model gave logits that are no numbers"


class Runner(Protocol):
    """Whatever computes a batch."""

    def run(self, batch: Batch) -> Outcome:
        """One forward pass; writes the KV of the batch's tokens into their slots."""


class Engine:
    """Runs jobs over one scheduler and one runner.

    clock: seconds, monotonic. max_waiting: sequences that may wait.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        cache: RadixCache,
        roots: Roots,
        advancer: Advancer,
        *,
        max_waiting: int,
        hints: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._cache = cache
        self._roots = roots
        self._advancer = advancer
        self._max_waiting = max_waiting
        self._hints = hints
        self._clock = clock
        self._jobs: dict[Job, None] = {}
        self._batch_size = 0
        self._started = 0.0
        self.counters = Counters()

    @property
    def has_work(self) -> bool:
        """Whether a call is open."""
        return bool(self._jobs)

    def load(self) -> dict[str, int]:
        """What there is now; any thread may ask, and may see figures of two steps. Sequences that
        run, wait and were in the last batch; slots in all and of each kind; nodes of the tree."""
        cache = self._cache
        return {
            "running": len(self._scheduler.running),
            "waiting": self._scheduler.num_waiting,
            "batch": self._batch_size if self._jobs else 0,
            "slots": cache.capacity,
            "free_slots": cache.num_free,
            "cached_slots": cache.num_cached,
            "locked_slots": cache.num_locked,
            "nodes": cache.num_nodes,
        }

    def admit(self, job: Job) -> None:
        """Take a job in; it waits for its turn, or fails at once when too many wait."""
        self.counters.calls += 1
        self._jobs[job] = None
        job.arrived = self._clock() if job.arrived is None else job.arrived
        if self._scheduler.num_waiting + len(job.sequences) > self._max_waiting:
            self._fail(job, self._overload(job))
            return
        if job.call.deadline is not None:
            job.expires = self._clock() + job.call.deadline
        try:
            for sequence in job.sequences:
                self._advancer.begin(sequence)
        except Exception as error:
            self._blame(job, error)
            return
        for sequence in job.sequences:
            if sequence.ending is None:
                self._scheduler.add(sequence)
            else:  # its constraint leaves no choice: nothing is to be computed
                self._close(sequence)
        if job.num_open == 0:
            self._complete(job)

    def step(self) -> None:
        """Compute one batch and deliver what it gave. Fails calls, never raises for them."""
        self._started, num_retracted = self._clock(), self._scheduler.num_retracted
        num_evicted = self._cache.num_evicted
        self._expire(self._started)
        parts = self._scheduler.schedule()
        self._batch_size = len(parts)
        if parts:
            self._run(parts)
        self._emit()
        self.counters.steps += 1
        self.counters.retracted += self._scheduler.num_retracted - num_retracted
        self.counters.evicted_tokens += self._cache.num_evicted - num_evicted
        self.counters.step_seconds += self._clock() - self._started

    def abort(self, job: Job) -> None:
        """End a job early; its outputs so far are its completion. Nothing if it has ended."""
        if job not in self._jobs:
            return
        for sequence in job.sequences:
            if sequence.ending is None:
                sequence.ending = Ending("abort", None, len(sequence.text))
                self._close(sequence)
        self._complete(job)

    def retract_all(self) -> None:
        """Send all that runs back to wait, as if memory had run out. For tests, between steps."""
        for sequence in list(self._scheduler.running):
            self._scheduler.retract(sequence)

    def clear_cache(self) -> int:
        """Forget what no running call uses; returns how many tokens."""
        return self._cache.clear()

    def next_event(self) -> float | None:
        """The clock's second at which an idle engine has something to do; None: never."""
        return self._roots.next_expiry()

    def expire_roots(self) -> None:
        """Release pinned roots whose time is over."""
        self._roots.expire(self._clock())

    def check(self) -> None:
        """Assert that slots are conserved and the tree is sound. For tests, between steps."""
        self._cache.check(self._scheduler.num_held_slots())
        if not self._jobs and not len(self._roots):
            assert self._cache.num_locked == 0, "a lease outlived its call"

    # --- running -----------------------------------------------------------------------------

    def _run(self, parts: list[Part]) -> None:
        """Run the parts together; if that raises, each by itself, so that only the guilty fail."""
        outcome = self._compute(parts)
        if isinstance(outcome, Outcome):
            self._advance(parts, outcome)
        elif len(parts) == 1:
            self._blame(parts[0].sequence.job, outcome)
        else:
            for part in parts:
                if part.sequence.job in self._jobs:
                    self._run([part])

    def _compute(self, parts: list[Part]) -> Outcome | Exception:
        """What the runner gives for these parts, or what it raises. Raises BackendClosed where the
        runner is gone for good."""
        started = self._clock()
        try:
            return self._runner.run(self._scheduler.build(parts))
        except BackendClosed:  # not these calls' fault, and there is no going on
            raise
        except Exception as error:
            return error
        finally:
            self.counters.run_seconds += self._clock() - started

    def _advance(self, parts: list[Part], outcome: Outcome) -> None:
        """Every sequence of the step takes what it was given."""
        self._scheduler.computed(parts)
        drawn = scored = answered = 0
        for part in parts:
            sequence = part.sequence
            self.counters.computed_tokens += part.count
            self._note_start(sequence.job)
            count = len(part.scored)
            sequence.scores += outcome.scores[scored : scored + count].tolist()
            sequence.score_tops += outcome.score_tops[scored : scored + count]
            scored += count
            if part.is_last and sequence.node is not None:
                self._tell(sequence, outcome.answers[answered])
                answered += 1
            if not (part.is_last and sequence.is_generating):
                continue
            self._take_token(sequence, outcome, drawn)
            drawn += 1
        self.counters.sampled_tokens += drawn

    def _tell(self, sequence: Sequence, answer: Answer) -> None:
        search, node = sequence.job.search, sequence.node
        assert search is not None and node is not None
        if np.isnan(answer.logprobs).any() or np.isnan(answer.log_masses).any():
            self._blame(sequence.job, ValueError(_NO_NUMBERS))
            return
        search.tell(node, answer.logprobs.tolist(), answer.log_masses.tolist())

    def _take_token(self, sequence: Sequence, outcome: Outcome, drawn: int) -> None:
        token = int(outcome.tokens[drawn])
        if token < 0:
            self._blame(sequence.job, ValueError(_NO_NUMBERS))
            return
        try:
            if sequence.job.call.sampling.log_mass:
                sequence.log_masses.append(_log_mass(outcome, drawn))
            self._advancer.advance(sequence, token, _logprob(sequence, outcome, drawn))
            self._scheduler.trim(sequence)
        except Exception as error:  # the constraint broke, or does not allow what was drawn
            self._blame(sequence.job, error)

    # --- endings -----------------------------------------------------------------------------

    def _emit(self) -> None:
        """Chunks to those who stream; endings to all."""
        for sequence in list(self._scheduler.running):
            job = sequence.job
            if job not in self._jobs:
                continue
            if sequence.num_pending == 0 and not sequence.is_generating:
                sequence.ending = Ending("length", None, 0)
            if sequence.ending is None:
                self._stream(sequence)
                continue
            self._close(sequence)
            if job.num_open == 0:
                self._complete(job)

    def _stream(self, sequence: Sequence) -> None:
        job = sequence.job
        if job.call.stream and sequence.is_generating:
            chunk = self._advancer.chunk(sequence)
            if chunk is not None:
                job.mailbox.put(chunk)

    def _close(self, sequence: Sequence) -> None:
        """Take an ended sequence out of the scheduler, and count it."""
        self._stream(sequence)
        self._scheduler.finish(sequence)
        sequence.job.num_open -= 1
        if sequence.cached_len is not None:
            self._note_start(sequence.job)
            self.counters.prompt_tokens += sequence.prompt_len
            self.counters.cached_tokens += sequence.cached_len
            self.counters.completion_tokens += sequence.num_new
            self.counters.forced_tokens += sequence.num_forced
            self._pin(sequence)
        if sequence.job.search is not None and not _is_aborted(sequence):
            self._grow(sequence, sequence.job.search)

    def _note_start(self, job: Job) -> None:
        """This step ran a call; if it is the first, the call's wait is over."""
        if job.arrived is not None:
            self.counters.queue_seconds.note(self._started - job.arrived)
            job.arrived = None

    def _grow(self, sequence: Sequence, search: Tokenizations) -> None:
        """Let the next nodes of a search wait for their turn, once those before are told."""
        job = sequence.job
        for node in search.wanted():
            child = sequence.at(node, len(job.sequences))
            job.sequences.append(child)
            job.num_open += 1
            self._scheduler.add(child)

    def _complete(self, job: Job) -> None:
        del self._jobs[job]
        self._leave(job)
        job.mailbox.finish(self._completion(job))

    def _completion(self, job: Job) -> Completion:
        usage = _usage(job)
        if job.call.options:
            if any(s.ending is not None and s.ending.reason == "abort" for s in job.sequences):
                return Completion(usage=usage)
            if job.search is not None:
                found = zip(job.call.options, job.search.bounds(), strict=True)
                told = (OptionScore(text, (), (), (Text(text),), bounds) for text, bounds in found)
                return Completion(usage=usage, scores=tuple(told))
            pairs = zip(job.sequences, job.call.options, strict=True)
            scores = tuple(self._advancer.option(sequence, text) for sequence, text in pairs)
            return Completion(usage=usage, scores=scores)
        outputs = tuple(map(self._advancer.output, job.sequences))
        return Completion(outputs, usage, (), self._advancer.prompt_logprobs(job.sequences[0]))

    def _fail(self, job: Job, error: BaseException) -> None:
        del self._jobs[job]
        self.counters.failed_calls += 1
        for sequence in job.sequences:
            self._scheduler.finish(sequence)
        self._leave(job)
        job.mailbox.fail(error)

    def _overload(self, job: Job) -> ForkrootError:
        field = "options" if job.call.options else "n"
        if len(job.sequences) > self._max_waiting:
            return CallTooLarge(field, len(job.sequences), f"{self._max_waiting} (max_waiting)")
        return Overloaded(
            f"{self._scheduler.num_waiting} wait already (max_waiting={self._max_waiting})"
        )

    def _blame(self, job: Job, cause: Exception) -> None:
        if job in self._jobs:
            error = CallFailed(f"the runtime failed while it ran this call: {cause!r}")
            error.__cause__ = cause
            self._fail(job, error)

    def _expire(self, now: float) -> None:
        self._roots.expire(now)
        for job in [j for j in self._jobs if j.expires is not None and j.expires <= now]:
            self._fail(job, DeadlineExceeded(f"deadline={job.call.deadline} s is over"))

    # --- forks -------------------------------------------------------------------------------

    def _hint(self, job: Job) -> ForkHint | None:
        return job.call.hint if self._hints else None

    def _pin(self, sequence: Sequence) -> None:
        """Pin what this sequence leaves in the cache, if it is a root that branches wait for."""
        job = sequence.job
        hint = self._hint(job)
        length = sequence.prompt_len if job.is_plant else job.root_len
        if hint is None or not length or sequence.index or _is_aborted(sequence):
            return
        namespace = job.call.namespace
        if job.is_plant or not self._roots.has(namespace, hint.root):
            lease = self._cache.acquire(namespace, sequence.ids[:length], length)
            self._roots.pin(namespace, hint.root, lease, hint.branches, self._clock())

    def _leave(self, job: Job) -> None:
        hint = self._hint(job)
        if hint is not None and not job.is_plant:
            self._roots.leave(job.call.namespace, hint.root, self._clock())


def _is_aborted(sequence: Sequence) -> bool:
    return sequence.ending is not None and sequence.ending.reason == "abort"


def _logprob(sequence: Sequence, outcome: Outcome, index: int) -> TokenLogprob | None:
    if sequence.job.call.sampling.logprobs is None:
        return None
    top = outcome.tops[index] if outcome.tops else ()
    return TokenLogprob(int(outcome.tokens[index]), float(outcome.logprobs[index]), top)


def _log_mass(outcome: Outcome, index: int) -> float:
    return float(outcome.log_masses[index]) if len(outcome.log_masses) else 0.0


def _usage(job: Job) -> Usage:
    """Samples share one prompt, as do the nodes of a search; each scored option has its own."""
    is_scored = job.call.options and job.search is None
    sequences = job.sequences if is_scored else job.sequences[:1]
    return Usage(
        prompt_tokens=sum(sequence.prompt_len for sequence in sequences),
        cached_tokens=sum(sequence.cached_len or 0 for sequence in sequences),
        completion_tokens=sum(sequence.num_new for sequence in job.sequences),
    )
