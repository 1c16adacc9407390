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
from ..radix.cache import Lease, RadixCache
from .accounting.tenants import Tenants
from .accounting.working_sets import LONG, WorkingSets, goes_on
from .forks import GRACE, Roots, space_of
from .sequence import Job, Sequence

LEAD = 0.1  # seconds before a program is due in which its text is loaded
MOST_PAUSED = 1024  # programs whose text is to be loaded


@dataclass(frozen=True, slots=True)
class _Paused:
    """Text that is not pinned, and when it is used again."""

    namespace: str
    tokens: Ints
    due: float


class Pauses:
    """The programs that pause. tenants: whose they are. hints: whether hints are followed."""

    def __init__(self, cache: RadixCache, roots: Roots, tenants: Tenants, hints: bool) -> None:
        self._cache = cache
        self._roots = roots
        self._hints = hints
        self._tenants = tenants
        self.working_sets = WorkingSets(cache.count_idle, hints)
        self._paused: OrderedDict[tuple[str, str], _Paused] = OrderedDict()

    def arrive(self, sequence: Sequence) -> None:
        """A sequence waits."""
        if self._is_continued(sequence):
            self.working_sets.arrive(sequence, sequence.job.call, sequence.tokens)

    def start(self, sequence: Sequence) -> None:
        """A sequence starts."""
        self.end(sequence.job)
        self.working_sets.begin(sequence, sequence.job.call)

    def leave(self, sequence: Sequence, lease: Lease) -> None:
        """A sequence is about to give up its lease, by its end or a retraction."""
        has_ended = sequence.ending is not None and not sequence.is_aborted
        if has_ended and self._is_continued(sequence):
            self.working_sets.end(sequence.job.call, sequence.tokens, lease)

    def reserved(self, sequence: Sequence, is_overdue: bool) -> int:
        """Slots that are left to other programs of a tenant, unless nothing of this one runs."""
        call = sequence.job.call
        is_idle = not self._tenants[call.owner].num_running
        return 0 if is_idle or is_overdue else self.working_sets.reserved(call)

    def expire(self, now: float) -> bool:
        """Load what is due, and wait no longer for what is late; whether there is any."""
        self.fetch(now)
        return self.working_sets.expire(now)

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
