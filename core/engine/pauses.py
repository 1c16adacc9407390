"""Programs between two of their calls: what they come back to stays, or comes back before them.

A hint says that a program goes on with a call's text, and how long it pauses. For a long pause the
text is pinned, as far as its tenant's share of pins goes (`forks`). Where there is a host tier, it
leaves the pool first instead, and is loaded again and pinned shortly before the program is due. The
text of a short pause is not pinned, see `working_sets`. It knows nothing of what runs meanwhile.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass

from ..api.batch import Ints
from ..api.protocol import Call
from ..radix.cache import Lease, RadixCache
from .accounting.tenants import Tenants
from .accounting.working_sets import LONG, SOON, WorkingSets, goes_on
from .forks import GRACE, Roots, Space, space_of
from .queue import TRIED_PER_STEP
from .sequence import Job, Sequence
from .step_shares import StepShares

LEAD = 0.1  # seconds before a program is due in which its text is loaded
MOST_PAUSED = 256  # programs of a tenant whose text is to be loaded


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
        self._num_held = Counter[str]()  # calls, by tenant, in this admission
        self._foreign = dict[str, int]()  # slots out of reach, by namespace, in this admission
        self._renewed = set[str]()  # whose programs' texts go last already, in this admission
        self._next_try = math.inf  # when the engine idles no longer for what is due
        self._paused: OrderedDict[tuple[Space, str], _Paused] = OrderedDict()

    def arrive(self, sequence: Sequence) -> None:
        """A sequence waits."""
        self.held_back.discard(sequence.job.call.owner)
        if self._is_continued(sequence):
            self.working_sets.arrive(sequence, sequence.job.call, sequence.tokens)

    def start(self, sequence: Sequence, needed: int) -> None:
        """A sequence starts. needed: slots that it needs; 0: it leaves none to other programs. What
        programs of its tenant use again is evicted last."""
        if needed > self._cache.num_free:
            self._renew(sequence.job.call.owner)
        self.end(sequence.job)
        job, count = sequence.job, sequence.num_ids
        self.working_sets.begin(sequence, job.call, count, is_root=job.is_prefill_only)

    def leave(self, sequence: Sequence, lease: Lease) -> None:
        """A sequence is about to give up its lease, by its end or a retraction."""
        self.held_back.discard(sequence.job.call.owner)
        self.working_sets.stop(sequence.job.call)
        has_ended = sequence.ending is not None and not sequence.is_aborted
        if has_ended and self._is_continued(sequence):
            self.working_sets.end(sequence.job.call, sequence.tokens, lease)

    def prepare(self) -> None:
        """Sequences are about to be admitted."""
        self.working_sets.note_locks()
        self._num_held.clear()
        self._renewed.clear()
        self._foreign.clear()

    def reserved(self, sequence: Sequence) -> float:
        """Slots that a sequence leaves to other programs of its tenant, as of before it locks what
        it uses. Where many of its tenant are held back already, and its program has not begun, all:
        to count them takes time, which others would wait."""
        call = sequence.job.call
        are_many = self._num_held[call.owner] >= TRIED_PER_STEP
        if are_many and not self.working_sets.is_in_progress(call):
            return math.inf
        return self.working_sets.reserved(call)

    def holds_back(
        self, sequence: Sequence, needed: int, available: int, num_new: int, reserved: float
    ) -> bool:
        """Whether a sequence waits, and leaves slots to other programs of its tenant. needed: slots
        that it needs. available: slots that there are. num_new: tokens that it is expected to
        generate. reserved: of `reserved`."""
        if not reserved or available >= needed + reserved + self._out_of_reach(sequence):
            return False
        if self._is_free(sequence.job.call, needed, num_new):
            return False
        owner = sequence.job.call.owner
        self._num_held[owner] += 1
        self.held_back.add(owner)
        return True

    def _out_of_reach(self, sequence: Sequence) -> int:
        """Slots that there are for others than a sequence's tenant, as of this admission."""
        call = sequence.job.call
        if call.namespace not in self._foreign:
            total, theirs = self._cache.num_available, self._cache.num_available_to(call.namespace)
            self._foreign[call.namespace] = total - theirs
        return self._foreign[call.namespace]

    def _renew(self, owner: str) -> None:
        if owner not in self._renewed:
            self._renewed.add(owner)
            for lease in self.working_sets.leases_of(owner):
                self._cache.renew(lease)

    def _is_free(self, call: Call, needed: int, num_new: int) -> bool:
        """Whether a call waits for no program: where that costs more than to compute what it
        evicts, or where nothing of its tenant runs, unless the engine rather idles."""
        if not self._tenants[call.owner].num_running:
            seconds = self._shares.prefill_seconds(needed)
            seconds_around = SOON if seconds is None else min(SOON, seconds)
            until = self.working_sets.idles_until(call, seconds_around)
            self._next_try = min(self._next_try, math.inf if until is None else until)
            return until is None
        return self._shares.rather_computes(needed, num_new, self._tenants.num_running)

    def discard(self, sequence: Sequence) -> None:
        """A sequence that waits is to run no more."""
        self.held_back.discard(sequence.job.call.owner)
        self.working_sets.leave(sequence)

    def expire(self, now: float) -> bool:
        """Load what is due, and wait no longer for what is late; whether calls that were held back
        may run now."""
        self.fetch(now)
        may_run = self.working_sets.expire(now) or now >= self._next_try
        if may_run:
            self.held_back.clear()
            self._next_try = math.inf
        return may_run

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
        self.held_back.clear()
        self._paused.clear()
        self.working_sets.clear()

    def _keep(self, key: tuple[Space, str], paused: _Paused) -> None:
        if self._cache.host is None:
            self._pin(*key, paused)
            return
        lease = self._cache.acquire(paused.namespace, paused.tokens, len(paused.tokens))
        self._cache.release_first(lease)
        self._paused[key] = paused
        own = [it for it in self._paused if it[0] == key[0]]
        if len(own) > MOST_PAUSED:
            del self._paused[own[0]]

    def _pin(self, space: Space, program: str, paused: _Paused) -> None:
        lease = self._cache.acquire(paused.namespace, paused.tokens, len(paused.tokens))
        self._roots.hold(space, program, lease, paused.due)

    def _is_continued(self, sequence: Sequence) -> bool:
        """Whether a program may go on with its text: not that of a root, or of further samples."""
        return sequence.index == 0 and self._is_of_program(sequence.job)

    def _is_of_program(self, job: Job) -> bool:
        hint = job.call.hint
        has_program = hint is not None and hint.program is not None
        return self._hints and has_program and not job.is_prefill_only
