"""Programs between two of their calls: what they come back to stays, or comes back before them.

A hint says that a program goes on with a call's text, and how long it pauses. For a long pause the
text is pinned, as far as its tenant's share of pins goes (`forks`). Where there is a host tier, it
leaves the pool first instead, and is loaded again and pinned shortly before the program is due. The
text of a short pause is not pinned, see `working_sets`. It knows nothing of what runs meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ..api.batch import Ints
from ..api.protocol import Call
from ..radix.cache import Lease, RadixCache
from .accounting.tenants import Tenants
from .accounting.working_sets import LONG, SOON, WorkingSets, goes_on
from .forks import GRACE, Roots, space_of
from .sequence import Job, Sequence
from .step_shares import StepShares

LEAD = 0.1  # seconds before a program is due in which its text is loaded
MOST_PAUSED = 1024  # programs whose text is to be loaded


@dataclass(frozen=True, slots=True)
class _Paused:
    """Text that is not pinned, and when it is used again."""

    namespace: str
    tokens: Ints
    due: float


class Pauses:
    """The programs that pause. tenants: whose they are. shares: that tell what steps cost. hints:
    whether hints are followed.

    held_back: tenants whose next call waits for its own programs."""

    def __init__(
        self, cache: RadixCache, roots: Roots, tenants: Tenants, shares: StepShares, hints: bool
    ) -> None:
        self._cache = cache
        self._roots = roots
        self._hints = hints
        self._tenants = tenants
        self._shares = shares
        self.working_sets = WorkingSets(cache.count_idle, hints)
        self.held_back = set[str]()
        self._paused: OrderedDict[tuple[str, str], _Paused] = OrderedDict()

    def arrive(self, sequence: Sequence) -> None:
        """A sequence waits."""
        self.held_back.discard(sequence.job.call.owner)
        if self._is_continued(sequence):
            self.working_sets.arrive(sequence, sequence.job.call, sequence.tokens)

    def start(self, sequence: Sequence) -> None:
        """A sequence starts."""
        self.end(sequence.job)
        self.working_sets.begin(sequence, sequence.job.call, sequence.num_ids)

    def leave(self, sequence: Sequence, lease: Lease) -> None:
        """A sequence is about to give up its lease, by its end or a retraction."""
        self.held_back.discard(sequence.job.call.owner)
        self.working_sets.stop(sequence.job.call)
        has_ended = sequence.ending is not None and not sequence.is_aborted
        if has_ended and self._is_continued(sequence):
            self.working_sets.end(sequence.job.call, sequence.tokens, lease)

    def holds_back(
        self, sequence: Sequence, needed: int, available: int, num_new: int, is_overdue: bool
    ) -> bool:
        """Whether a sequence leaves slots that are available, and of which it needs so many, to
        other programs of its tenant. num_new: tokens that it is expected to generate."""
        if needed > available or is_overdue or self._is_free(sequence.job.call, needed, num_new):
            return False
        is_held = available < needed + self.working_sets.reserved(sequence.job.call)
        if is_held:
            self.held_back.add(sequence.job.call.owner)
        return is_held

    def _is_free(self, call: Call, needed: int, num_new: int) -> bool:
        """Whether a call waits for no program: where that costs more than to compute what it
        evicts, or where nothing of its tenant runs, unless the engine rather idles."""
        if not self._tenants[call.owner].num_running:
            seconds = self._shares.prefill_seconds(needed)
            seconds_around = SOON if seconds is None else min(SOON, seconds)
            return not self.working_sets.rather_idles(call, seconds_around)
        return self._shares.rather_computes(needed, num_new, self._tenants.num_running)

    def discard(self, sequence: Sequence) -> None:
        """A sequence that waits is to run no more."""
        self.held_back.discard(sequence.job.call.owner)
        self.working_sets.leave(sequence)

    def expire(self, now: float) -> bool:
        """Load what is due, and wait no longer for what is late; whether there is any."""
        self.fetch(now)
        has_late = self.working_sets.expire(now)
        if has_late:
            self.held_back.clear()
        return has_late

    def begin(self, sequence: Sequence, now: float) -> None:
        """A sequence has ended: keep what it leaves in the cache if its program goes on with it."""
        job, hint = sequence.job, sequence.job.call.hint
        if hint is None or hint.program is None or not self._is_continued(sequence):
            return
        self.end(job)
        if sequence.is_aborted or not goes_on(hint) or hint.pause is None or hint.pause < LONG:
            return
        due = now + min(hint.pause, self._roots.timeout)
        paused = _Paused(job.call.namespace, sequence.tokens.copy(), due)
        self._keep((space_of(job), hint.program), paused)

    def end(self, job: Job) -> None:
        """A call has started: what its program comes back to, the call has itself now."""
        hint = job.call.hint
        if hint is not None and hint.program is not None and self._is_of_program(job):
            self._paused.pop((space_of(job), hint.program), None)
            self._roots.resume(space_of(job), hint.program)

    def fetch(self, now: float) -> None:
        """Load the text of programs that are due soon, as far as their tenants' shares go."""
        for key in [key for key, it in self._paused.items() if it.due - LEAD <= now]:
            paused = self._paused.pop(key)
            if paused.due + GRACE > now:
                self._pin(*key, paused)

    def next_event(self) -> float | None:
        """When `fetch` has something to do next."""
        return min((it.due - LEAD for it in self._paused.values()), default=None)

    def clear(self) -> None:
        """Forget all, because the cache is emptied."""
        self._paused.clear()
        self.working_sets.clear()

    def _keep(self, key: tuple[str, str], paused: _Paused) -> None:
        if self._cache.host is None:
            self._pin(*key, paused)
            return
        lease = self._cache.acquire(paused.namespace, paused.tokens, len(paused.tokens))
        self._cache.release_first(lease)
        self._paused[key] = paused
        if len(self._paused) > MOST_PAUSED:
            self._paused.popitem(last=False)

    def _pin(self, space: str, program: str, paused: _Paused) -> None:
        lease = self._cache.acquire(paused.namespace, paused.tokens, len(paused.tokens))
        self._roots.hold(space, program, lease, paused.due)

    def _is_continued(self, sequence: Sequence) -> bool:
        """Whether a program may go on with its text: not that of a root, or of further samples."""
        return sequence.index == 0 and self._is_of_program(sequence.job)

    def _is_of_program(self, job: Job) -> bool:
        hint = job.call.hint
        has_program = hint is not None and hint.program is not None
        return self._hints and has_program and not job.is_prefill_only
