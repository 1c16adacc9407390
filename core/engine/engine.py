"""The engine: admit, schedule, run, advance, emit.

One thread calls `step` in a loop; scheduler and runner are arguments, so that the whole of it runs
without a model in tests. Nothing here knows what a tensor, a framework or a file is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ..api.batch import GREEDY, Answer, Batch, Outcome, SamplingParams
from ..api.protocol import CallFailed, CallTooLarge, DeadlineExceeded, ForkrootError, Overloaded
from ..common.counters import Counters
from ..fsm.tokens.tokenizations import Tokenizations
from ..radix.cache import RadixCache
from .batch import Part, read_logprob, write_batch
from .forks import RootPinning, Roots
from .output import OutputProcessor
from .overlap import Launcher, PendingStep, Runner, attempt
from .scheduler import Scheduler
from .sequence import Ending, Job, Sequence

T = TypeVar("T")
_NOT_FINITE = "the model's logits are not finite"


class Engine:
    """Runs jobs over one scheduler and one runner.

    clock: seconds, monotonic. max_waiting: sequences of a tenant that may wait. overlap: whether
      each batch is launched before the results of the previous one are read, if the runner is a
      Launcher.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        cache: RadixCache,
        roots: Roots,
        output_processor: OutputProcessor,
        *,
        max_waiting: int,
        hints: bool = True,
        overlap: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._cache = cache
        self._roots = roots
        self._output_processor = output_processor
        self._max_waiting = max_waiting
        self._pinning = RootPinning(cache, roots, hints)
        self._launcher = runner if overlap and isinstance(runner, Launcher) else None
        self._in_flight: PendingStep | None = None
        self._needs_sync_step = False
        self._clock = clock
        self._jobs: dict[Job, None] = {}
        self._batch_size = 0
        self._started = 0.0
        self.counters = Counters()

    @property
    def has_work(self) -> bool:
        """Whether a call is open, or a batch is in flight."""
        return bool(self._jobs) or self._in_flight is not None

    def load(self) -> dict[str, int]:
        """What there is now; any thread may call this, and may see figures of two steps. Sequences
        that run, wait and were in the last batch; slots in all and of each kind; nodes of the tree;
        bytes of log-probabilities that are kept."""
        return {
            "running": len(self._scheduler.running),
            "waiting": self._scheduler.num_waiting,
            "batch": self._batch_size if self._jobs else 0,
            **self._cache.load(),
        }

    def admit(self, job: Job) -> None:
        """Take a job in; it waits for its turn, or fails at once when too many wait."""
        self.counters.calls += 1
        self._jobs[job] = None
        job.arrived = self._clock() if job.arrived is None else job.arrived
        num_waiting = self._scheduler.num_waiting_of(job.call.owner)
        if num_waiting + len(job.sequences) > self._max_waiting:
            self._fail(job, self._overload(job))
            return
        if job.call.deadline is not None:
            job.expires = job.arrived + job.call.deadline
        try:
            for sequence in job.sequences:
                self._output_processor.begin(sequence)
        except Exception as error:
            self._fail_with(job, error)
            return
        for sequence in job.sequences:
            if sequence.ending is None:
                self._scheduler.add(sequence)
            else:  # its constraint leaves no choice: nothing is to be computed
                self._close(sequence)
        if job.num_open == 0:
            self._complete(job)

    def step(self) -> None:
        """Compute one batch and deliver its results, or those of the previous one that was still in
        flight. Fails calls, never raises for them."""
        self._started, num_retracted = self._clock(), self._scheduler.num_retracted
        num_evicted = self._cache.num_evicted
        self._scheduler.shares.begin(self._started, is_alone=self._in_flight is None)
        self._expire(self._started)
        if self._launcher is None or self._needs_sync_step:
            parts = self._scheduler.schedule()
            self._batch_size = len(parts)
            self._run(parts)
            self._needs_sync_step = False
        else:
            parts = self._step_overlapped(self._launcher)
        for part in parts:
            if part.sequence.job.arrived is not None:
                self._note_start(part.sequence.job)
        self._emit()
        self.counters.steps += 1
        self.counters.retracted += self._scheduler.num_retracted - num_retracted
        self.counters.evicted_tokens += self._cache.num_evicted - num_evicted
        ended = self._clock()
        self.counters.step_seconds += ended - self._started
        if self._launcher is None:
            self._scheduler.shares.end(parts, ended)

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
        """Send all running sequences back to wait, as if memory had run out; then nothing is in
        flight. For tests, between steps."""
        self._finish_in_flight()
        self._emit()
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
        """Run the parts together; if that raises, each by itself, so that only those fail that
        raise."""
        if not parts:
            return
        outcome = self._timed(lambda: self._runner.run(self._batch(parts, has_params=True)))
        if isinstance(outcome, Outcome):
            self._advance(parts, outcome)
        elif len(parts) == 1:
            self._fail_with(parts[0].sequence.job, outcome)
        else:
            for part in parts:
                if part.is_live:
                    self._run([part])

    def _batch(self, parts: list[Part], has_params: bool) -> Batch:
        scheduler, host = self._scheduler, self._cache.host
        return write_batch(parts, scheduler.table, host, has_params, scheduler.take_changes())

    def _timed(self, action: Callable[[], T]) -> T | Exception:
        """What the action returns or raises; its time is added to `run_seconds`."""
        started = self._clock()
        try:
            return attempt(action)
        finally:
            self.counters.run_seconds += self._clock() - started

    def _advance(self, parts: list[Part], outcome: Outcome) -> None:
        """Apply the results of each part to its sequence, unless the part became invalid
        meanwhile."""
        self._scheduler.computed(parts)
        tokens = outcome.tokens.tolist()
        num_sampled = scored = answered = num_computed = num_taken = 0
        for part in parts:
            sequence, is_live = part.sequence, part.is_live
            if is_live:
                num_computed += part.count
                if sequence.cached_root_len is None:
                    sequence.cached_root_len = self._pinning.count_root_tokens(sequence)
                if part.scored:
                    found = slice(scored, scored + len(part.scored))
                    sequence.scores += outcome.scores[found].tolist()
                    sequence.score_tops += outcome.score_tops[found]
                if sequence.num_stored_scores < len(sequence.scores):
                    self._scheduler.cache_scores(sequence)
            scored += len(part.scored)
            if not part.is_last:
                continue
            if sequence.node is not None:
                if is_live:
                    self._take_answer(sequence, outcome.answers[answered])
                answered += 1
            if sequence.is_generating:
                if part.is_wanted:
                    self._take_token(sequence, tokens[num_sampled], outcome, num_sampled)
                    num_taken += 1
                num_sampled += 1
        self.counters.computed_tokens += num_computed
        self.counters.sampled_tokens += num_taken

    def _take_answer(self, sequence: Sequence, answer: Answer) -> None:
        search, node = sequence.job.search, sequence.node
        assert search is not None and node is not None
        if np.isnan(answer.logprobs).any() or np.isnan(answer.log_masses).any():
            self._fail_with(sequence.job, ValueError(_NOT_FINITE))
            return
        search.set_logprobs(node, answer.logprobs.tolist(), answer.log_masses.tolist())

    def _take_token(self, sequence: Sequence, token: int, outcome: Outcome, index: int) -> None:
        if token < 0:
            self._fail_with(sequence.job, ValueError(_NOT_FINITE))
            return
        sampling, logprob = sequence.job.call.sampling, None
        try:
            if sampling.log_mass:
                masses = outcome.log_masses
                sequence.log_masses.append(float(masses[index]) if len(masses) else 0.0)
            if sampling.logprobs is not None:
                logprob = read_logprob(outcome, index)
            self._output_processor.advance(sequence, token, logprob)
            if sequence.has_stale_slots:
                self._scheduler.trim(sequence)
        except Exception as error:  # the constraint broke, or does not allow the token
            self._fail_with(sequence.job, error)

    # --- overlap -----------------------------------------------------------------------------

    def _step_overlapped(self, launcher: Launcher) -> list[Part]:
        """Launch the next batch while the previous one may still be in flight, then finish that
        one; finish it first where nothing can be scheduled ahead. So the device has work while the
        results of the previous batch are processed."""
        parts = [] if self._in_flight is None else self._scheduler.schedule_ahead()
        if not parts:
            self._finish_in_flight()
            self._emit()
            parts = [] if self._needs_sync_step else self._scheduler.schedule()
        self._batch_size = len(parts)
        pending = self._launch(launcher, parts) if parts else None
        self._finish_in_flight()
        self._in_flight = pending
        if pending is not None:
            params = [self._params_for(part) for part in parts if part.is_sampling]
            self._timed(lambda: pending.sample(tuple(params)))
            if self._needs_sync_step or pending.has_failed:
                self._finish_in_flight()
        return parts

    def _launch(self, launcher: Launcher, parts: list[Part]) -> PendingStep:
        started = self._clock()
        batch = self._batch(parts, has_params=False)
        pending = PendingStep(parts, lambda: launcher.launch(batch))
        self.counters.run_seconds += self._clock() - started
        return pending

    def _params_for(self, part: Part) -> SamplingParams:
        """The sampling parameters after this part; greedy where its sample will be dropped."""
        sequence = part.sequence
        if not part.is_wanted or sequence.ending is not None:
            return GREEDY
        try:
            return sequence.sampling_params()
        except Exception as error:  # the constraint broke
            self._fail_with(sequence.job, error)
            return GREEDY

    def _finish_in_flight(self) -> None:
        """Wait for the batch in flight, if any, and apply its results. If it failed, everything in
        flight is dropped and the next step runs synchronously, which finds the sequence at
        fault."""
        pending, self._in_flight = self._in_flight, None
        if pending is None:
            return
        outcome = self._timed(pending.result)
        self._scheduler.shares.end(pending.parts, self._clock())
        if isinstance(outcome, Outcome):
            self._advance(pending.parts, outcome)
        else:
            self._scheduler.drop_in_flight()
            self._needs_sync_step = True

    # --- endings -----------------------------------------------------------------------------

    def _emit(self) -> None:
        """Send chunks to streaming calls, and end the calls that are finished."""
        for sequence in list(self._scheduler.running):
            job = sequence.job
            if job not in self._jobs:
                continue
            if not sequence.is_generating and sequence.num_pending == 0:
                sequence.ending = Ending("length", None, 0)
            if sequence.ending is None:
                if job.call.stream:
                    self._stream(sequence)
                continue
            self._close(sequence)
            if job.num_open == 0:
                self._complete(job)

    def _stream(self, sequence: Sequence) -> None:
        job = sequence.job
        if job.call.stream and sequence.is_generating:
            chunk = self._output_processor.chunk(sequence)
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
            self.counters.root_tokens += sequence.cached_root_len or 0
            self.counters.completion_tokens += sequence.num_new
            self.counters.forced_tokens += sequence.num_forced
            self._pinning.pin(sequence, self._clock())
        if sequence.job.search is not None and not sequence.is_aborted:
            self._add_search_nodes(sequence, sequence.job.search)

    def _note_start(self, job: Job) -> None:
        """This step ran a call; if it is the first, the call's wait is over."""
        if job.arrived is not None:
            self.counters.queue_seconds.note(self._started - job.arrived)
            job.arrived = None

    def _add_search_nodes(self, sequence: Sequence, search: Tokenizations) -> None:
        """Add the next nodes of a search as waiting sequences, once their parents are answered."""
        job = sequence.job
        for node in search.wanted():
            child = sequence.at(node, len(job.sequences))
            job.sequences.append(child)
            job.num_open += 1
            self._scheduler.add(child)

    def _complete(self, job: Job) -> None:
        del self._jobs[job]
        self._pinning.finish_branch(job, self._clock())
        job.mailbox.finish(self._output_processor.completion(job))

    def _fail(self, job: Job, error: BaseException) -> None:
        del self._jobs[job]
        self.counters.failed_calls += 1
        for sequence in job.sequences:
            self._scheduler.finish(sequence)
        self._pinning.finish_branch(job, self._clock())
        job.mailbox.fail(error)

    def _overload(self, job: Job) -> ForkrootError:
        field, count = "options" if job.call.options else "n", len(job.sequences)
        if count > self._max_waiting:
            return CallTooLarge(field, count, f"{self._max_waiting} (max_waiting)")
        num_waiting = self._scheduler.num_waiting_of(job.call.owner)
        return Overloaded(f"{num_waiting} wait already (max_waiting={self._max_waiting})")

    def _fail_with(self, job: Job, cause: Exception) -> None:
        if job in self._jobs:
            error = CallFailed(f"the runtime failed while it ran this call: {cause!r}")
            error.__cause__ = cause
            self._fail(job, error)

    def _expire(self, now: float) -> None:
        self._roots.expire(now)
        for job in [j for j in self._jobs if j.expires is not None and j.expires <= now]:
            self._fail(job, DeadlineExceeded(f"deadline={job.call.deadline} s is over"))
