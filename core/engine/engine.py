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
from ..api.program_report import NUM_KINDS, ProgramReport
from ..api.protocol import InvalidCall, Shown
from ..common.counters import Counters
from ..radix.cache import RadixCache
from .accounting.programs import ProgramCounts
from .batch import Part, read_logprob, write_batch
from .forks import RootPinning, Roots
from .open_jobs import OpenJobs
from .output import OutputProcessor
from .overlap import Launcher, PendingStep, Runner, attempt
from .pictures.features import Work
from .scheduler import Scheduler
from .sequence import Job, Sequence

T = TypeVar("T")
_NOT_FINITE = "the model's logits are not finite"
_SHOWN = 40  # bytes of an answer
_WITH_A_WAY = "one that some text meets: this answer can be continued by none"


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
        self._features = scheduler.features
        self._runner = runner
        self._cache = cache
        self._roots = roots
        self._output_processor = output_processor
        self._pinning = RootPinning(cache, roots, hints)
        self._launcher = runner if overlap and isinstance(runner, Launcher) else None
        self._in_flight: PendingStep | None = None
        self._needs_sync_step = False
        self._clock = clock
        self._jobs = OpenJobs(scheduler, output_processor, self._pinning, max_waiting, clock)
        self._batch_size = 0
        self._has_run = False

    @property
    def counters(self) -> Counters:
        """Totals since the start, or since they were set anew."""
        return self._jobs.counters

    @counters.setter
    def counters(self, counters: Counters) -> None:
        self._jobs.counters = counters
        self._jobs.programs = ProgramCounts()

    def program_report(self, tenant: str | None = None, most: int = NUM_KINDS) -> ProgramReport:
        """What programs have used, by kind, since the counters were set anew. tenant: of this one
        only. most: kinds of the report."""
        seconds = self._scheduler.shares.prompt_seconds
        return self._jobs.programs.report(seconds, self._clock(), tenant, most)

    @property
    def has_work(self) -> bool:
        """Whether a call is open, or a batch is in flight."""
        return bool(self._jobs) or self._in_flight is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the last step computed nothing, as all that is open waits for pictures, or for
        programs that are due."""
        is_idling = bool(self._scheduler.pauses.held_back) and not self._scheduler.running
        is_waiting = self._features.is_waiting or is_idling
        return is_waiting and not self._has_run and self._in_flight is None

    def load(self) -> dict[str, int]:
        """What there is now; any thread may call this, and may see figures of two steps. Sequences
        that run, wait and were in the last batch; slots in all and of each kind; nodes of the tree;
        bytes of log-probabilities that are kept; features of pictures."""
        return {
            "running": len(self._scheduler.running),
            "waiting": self._scheduler.num_waiting,
            "batch": self._batch_size if self._jobs else 0,
            **self._cache.load(),
            "features": self._features.num_features,
        }

    def admit(self, job: Job) -> None:
        """Take a job in; it waits for its turn, or fails at once when too many wait."""
        self._jobs.admit(job)

    def step(self) -> None:
        """Compute one batch and deliver its results, or those of the previous one that was still in
        flight. Fails calls, never raises for them."""
        started, num_retracted = self._clock(), self._scheduler.num_retracted
        num_evicted = self._cache.num_evicted
        self._jobs.step_started = started
        self._scheduler.shares.begin(started, is_alone=self._in_flight is None)
        self._roots.expire(started)
        self._scheduler.expire(started)
        self._jobs.expire(started)
        if self._launcher is None or self._needs_sync_step:
            parts = self._scheduler.schedule()
            self._batch_size = len(parts)
            self._has_run = bool(parts) or self._features.has_work
            if self._has_run:
                self._run(parts, self._features.take())
            self._needs_sync_step = False
        else:
            parts = self._step_overlapped(self._launcher)
        for sequence, error in self._features.take_broken():
            self._jobs.fail_with(sequence.job, error)
        for part in parts:
            if part.sequence.job.arrived is not None:
                self._jobs.note_start(part.sequence.job)
        self._jobs.emit()
        counts = self._features.take_counts()
        for name, count in counts.items():
            setattr(self.counters, name, getattr(self.counters, name) + count)
        self.counters.steps += 1
        self.counters.retracted += self._scheduler.num_retracted - num_retracted
        self.counters.evicted_tokens += self._cache.num_evicted - num_evicted
        ended = self._clock()
        self.counters.step_seconds += ended - started
        if self._launcher is None:
            self._scheduler.shares.end(parts, ended, counts.get("tower_tokens", 0))

    def abort(self, job: Job) -> None:
        """End a job early; its outputs so far are its completion. Nothing if it has ended."""
        self._jobs.abort(job)

    def retract_all(self) -> None:
        """Send all running sequences back to wait, as if memory had run out; then nothing is in
        flight. For tests, between steps."""
        self._finish_in_flight()
        self._jobs.emit()
        for sequence in list(self._scheduler.running):
            self._scheduler.retract(sequence)

    def clear_cache(self) -> int:
        """Forget what no running call uses, pinned roots included; returns how many tokens."""
        self._roots.release_all()
        self._scheduler.pauses.clear()
        self._features.clear()
        return self._cache.clear()

    def next_event(self) -> float | None:
        """The clock's second at which an idle engine has something to do; None: never."""
        events = self._roots.next_expiry(), self._scheduler.pauses.next_event()
        return min((it for it in events if it is not None), default=None)

    def expire_roots(self) -> None:
        """Release pinned roots whose time is over, and load what programs are to use soon."""
        self._roots.expire(self._clock())
        self._scheduler.pauses.fetch(self._clock())

    def check(self) -> None:
        """Assert that slots are conserved and the tree is sound. For tests, between steps."""
        running = self._scheduler.running
        held = [s.num_allocated - s.lease.length for s in running if s.lease is not None]
        self._cache.check(sum(held))
        self._features.check(running)
        if not self._jobs and not len(self._roots):
            assert self._cache.num_locked == 0, "a lease outlived its call"

    # --- running -----------------------------------------------------------------------------

    def _run(self, parts: list[Part], work: Work) -> None:
        """Run the parts together, and what the tower is to compute; if that raises, each picture
        and each part by itself, so that only those fail that raise."""
        outcome = self._timed(lambda: self._runner.run(self._batch(parts, work, has_params=True)))
        if isinstance(outcome, Outcome):
            self._features.hold(work)
            self._advance(parts, outcome)
            return
        alone = self._features.fail(work)
        if len(parts) + len(alone) == 1:
            sequences = [part.sequence for part in parts] or self._features.readers_of(work)
            for sequence in sequences:
                self._jobs.fail_with(sequence.job, outcome)
            return
        for picture in alone:
            self._run([], picture)
        for part in parts:
            if part.is_live:
                self._run([part], Work())

    def _batch(self, parts: list[Part], work: Work, has_params: bool) -> Batch:
        table, host = self._scheduler.table, self._cache.host
        return write_batch(parts, table.slots, host, has_params, table.take_changes(), work)

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
            self._jobs.fail_with(sequence.job, ValueError(_NOT_FINITE))
            return
        search.set_logprobs(node, answer.logprobs.tolist(), answer.log_masses.tolist())

    def _take_token(self, sequence: Sequence, token: int, outcome: Outcome, index: int) -> None:
        if token < 0:
            if _is_stuck(sequence):
                self._jobs.fail(sequence.job, _dead_end(sequence))
            else:
                self._jobs.fail_with(sequence.job, ValueError(_NOT_FINITE))
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
            self._jobs.fail_with(sequence.job, error)

    # --- overlap -----------------------------------------------------------------------------

    def _step_overlapped(self, launcher: Launcher) -> list[Part]:
        """Launch the next batch while the previous one may still be in flight, then finish that
        one; finish it first where nothing can be scheduled ahead. So the device has work while the
        results of the previous batch are processed."""
        parts = [] if self._in_flight is None else self._scheduler.schedule_ahead()
        if not parts:
            self._finish_in_flight()
            self._jobs.emit()
            parts = [] if self._needs_sync_step else self._scheduler.schedule()
        self._batch_size = len(parts)
        self._has_run = bool(parts) or self._features.has_work
        pending = self._launch(launcher, parts) if self._has_run else None
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
        work = self._features.take()
        batch = self._batch(parts, work, has_params=False)
        pending = PendingStep(parts, work, lambda: launcher.launch(batch))
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
            self._jobs.fail_with(sequence.job, error)
            return GREEDY

    def _finish_in_flight(self) -> None:
        """Wait for the batch in flight, if any, and apply its results. If it failed, everything in
        flight is dropped and the next step runs synchronously, which finds the sequence at
        fault."""
        pending, self._in_flight = self._in_flight, None
        if pending is None:
            return
        outcome = self._timed(pending.result)
        self._scheduler.shares.end(pending.parts, self._clock(), pending.work.num_tokens)
        if isinstance(outcome, Outcome):
            self._advance(pending.parts, outcome)
        else:
            self._scheduler.drop_in_flight()
            self._features.fail(pending.work)
            self._needs_sync_step = True


def _dead_end(sequence: Sequence) -> InvalidCall:
    """The error of an answer that its constraint does not let go on, with the last of its text."""
    kind = type(sequence.job.call.constraint).__name__
    text = bytes(sequence.text[-_SHOWN:]).decode(errors="replace")
    return InvalidCall("constraint", Shown(f"{kind} (behind {text!r})"), _WITH_A_WAY)


def _is_stuck(sequence: Sequence) -> bool:
    """Whether its constraint allows no token at all."""
    mask = sequence.sampling_params().mask
    return mask is not None and not mask.any()
