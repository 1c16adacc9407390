"""Jobs that have not ended, and how they end: each once, in a completion or in a typed error.

It knows nothing of batches and runners.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..api.protocol import CallFailed, CallTooLarge, DeadlineExceeded, ForkrootError, Overloaded
from ..common.counters import Counters
from ..fsm.tokens.tokenizations import Tokenizations
from .accounting.programs import ProgramCounts
from .forks import RootPinning
from .output import OutputProcessor
from .scheduler import Scheduler
from .sequence import Ending, Job, Sequence


class OpenJobs:
    """The open jobs of an engine, in the order of their arrival.

    max_waiting: sequences of a tenant that may wait. clock: seconds, monotonic.
    step_started: the clock's second at which the current step began. programs: what they use.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        output_processor: OutputProcessor,
        pinning: RootPinning,
        max_waiting: int,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._output_processor = output_processor
        self._pinning = pinning
        self._max_waiting = max_waiting
        self._clock = clock
        self._jobs: dict[Job, None] = {}
        self._expiring: dict[Job, float] = {}  # the clock's second at which each fails
        self._next_expiry = math.inf  # no deadline is over before
        self.counters = Counters()
        self.programs = ProgramCounts()
        self.step_started = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: Job) -> bool:
        return job in self._jobs

    def admit(self, job: Job) -> None:
        """Take a job in; it waits for its turn, or fails at once when too many wait."""
        self.counters.calls += 1
        self._jobs[job] = None
        job.arrived = self._clock() if job.arrived is None else job.arrived
        self.programs.begin(job, job.call, job.prompt, job.arrived)
        num_waiting = self._scheduler.num_waiting_of(job.call.owner)
        if num_waiting + len(job.sequences) > self._max_waiting:
            self.fail(job, self._overload(job))
            return
        self._pinning.expect(job)
        if job.call.deadline is not None:
            expires = self._expiring[job] = job.arrived + job.call.deadline
            self._next_expiry = min(self._next_expiry, expires)
        try:
            for sequence in job.sequences:
                self._output_processor.begin(sequence)
        except Exception as error:
            self.fail_with(job, error)
            return
        for sequence in job.sequences:
            if sequence.ending is None:
                self._scheduler.add(sequence)
            else:  # its constraint leaves no choice: nothing is to be computed
                self.close(sequence)
        if job.num_open == 0:
            self.complete(job)

    def emit(self) -> None:
        """Send chunks to streaming calls, and end the calls that are finished."""
        self._scheduler.pauses.working_sets.note_time(self._clock())
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
            self.close(sequence)
            if job.num_open == 0:
                self.complete(job)

    def close(self, sequence: Sequence) -> None:
        """Take an ended sequence out of the scheduler, and count it."""
        self._stream(sequence)
        self._scheduler.finish(sequence)
        sequence.job.num_open -= 1
        if sequence.cached_len is not None:
            self.note_start(sequence.job)
            self.counters.prompt_tokens += sequence.prompt_len
            self.counters.image_tokens += sequence.num_image_tokens
            self.counters.cached_tokens += sequence.cached_len
            self.counters.root_tokens += sequence.cached_root_len or 0
            self.counters.completion_tokens += sequence.num_new
            self.counters.forced_tokens += sequence.num_forced
            self._pinning.pin(sequence, self._clock())
            self._scheduler.pauses.begin(sequence, self._clock())
        if sequence.job.search is not None and not sequence.is_aborted:
            self._add_search_nodes(sequence, sequence.job.search)

    def abort(self, job: Job) -> None:
        """End a job early; its outputs so far are its completion. Nothing if it has ended."""
        if job not in self._jobs:
            return
        for sequence in job.sequences:
            if sequence.ending is None:
                sequence.ending = Ending("abort", None, len(sequence.text))
                self.close(sequence)
        self.complete(job)

    def note_start(self, job: Job) -> None:
        """This step ran a call; if it is the first, the call's wait is over."""
        if job.arrived is not None:
            self.counters.queue_seconds.note(self.step_started - job.arrived)
            job.arrived = None

    def complete(self, job: Job) -> None:
        """End a job whose sequences have ended."""
        self._forget(job)
        completion, now = self._output_processor.completion(job), self._clock()
        self.programs.end(job, completion.usage, self._pinning.root_len(job), now)
        self._pinning.finish_branch(job, now)
        job.mailbox.finish(completion)

    def fail(self, job: Job, error: BaseException) -> None:
        """End a job in this error."""
        self._forget(job)
        self.counters.failed_calls += 1
        for sequence in job.sequences:
            self._scheduler.finish(sequence)
        now = self._clock()
        self.programs.fail(job, now)
        self._pinning.finish_branch(job, now)
        job.mailbox.fail(error)

    def fail_with(self, job: Job, cause: Exception) -> None:
        """End a job in CallFailed, unless it has ended."""
        if job in self._jobs:
            error = CallFailed(f"the runtime failed while it ran this call: {cause!r}")
            error.__cause__ = cause
            self.fail(job, error)

    def expire(self, now: float) -> None:
        """Fail the jobs whose deadlines are over. Takes no time before the next one may be."""
        if now < self._next_expiry:
            return
        for job in [job for job, expires in self._expiring.items() if expires <= now]:
            self.fail(job, DeadlineExceeded(f"deadline={job.call.deadline} s is over"))
        self._next_expiry = min(self._expiring.values(), default=math.inf)

    def _forget(self, job: Job) -> None:
        del self._jobs[job]
        self._pinning.forget(job, self._clock())
        self._expiring.pop(job, None)

    def _stream(self, sequence: Sequence) -> None:
        job = sequence.job
        if job.call.stream and sequence.is_generating:
            chunk = self._output_processor.chunk(sequence)
            if chunk is not None:
                job.mailbox.put(chunk)

    def _add_search_nodes(self, sequence: Sequence, search: Tokenizations) -> None:
        """Add the next nodes of a search as waiting sequences, once their parents are answered."""
        job = sequence.job
        for node in search.wanted():
            child = sequence.at(node, len(job.sequences))
            job.sequences.append(child)
            job.num_open += 1
            self._scheduler.add(child)

    def _overload(self, job: Job) -> ForkrootError:
        field, count = "options" if job.call.options else "n", len(job.sequences)
        if count > self._max_waiting:
            return CallTooLarge(field, count, f"{self._max_waiting} (max_waiting)")
        num_waiting = self._scheduler.num_waiting_of(job.call.owner)
        return Overloaded(f"{num_waiting} wait already (max_waiting={self._max_waiting})")
