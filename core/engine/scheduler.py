"""Cache-aware scheduling with continuous batching (paper, Algorithm 1).

Decides which sequences run in the next step and which of their tokens are computed; owns the slot
table and the leases of running sequences. Works on integers: it knows nothing of text or tensors.
"""

from __future__ import annotations

from ..radix.cache import Lease, RadixCache
from .batch import Part
from .endings import Endings
from .forks import Roots
from .pauses import Pauses
from .pictures.features import Features
from .preemption import Holders, Memory, is_prefilling, unallocated
from .prefilling import Prefilling
from .queue import TRIED_PER_STEP, WaitingQueue
from .sequence import Sequence
from .slot_table import SlotTable
from .step_shares import StepShares


class Scheduler:
    """Waiting and running sequences over one cache.

    max_running: rows of the slot table. context_len: its columns, and a sequence's longest length.
    chunk_tokens: prompt tokens computed in one step at most (chunked prefill).
    features: those of pictures that the runner holds; None: sequences show no pictures.
    endings: releases what ended sequences computed; None: least recently used tokens go first.
    """

    def __init__(
        self,
        cache: RadixCache,
        roots: Roots,
        queue: WaitingQueue,
        *,
        max_running: int,
        context_len: int,
        chunk_tokens: int,
        features: Features[Sequence] | None = None,
        endings: Endings | None = None,
    ) -> None:
        self._cache, self._roots, self._queue = cache, roots, queue
        self._chunk_tokens = chunk_tokens
        self._prefilling, self._blocked = Prefilling(queue.hold_min), dict[str, int]()
        self._is_changed, self._num_roots, self.num_retracted = True, 0, 0
        self._endings = endings or Endings(cache, is_on=False)
        self.features: Features[Sequence] = features or Features()
        self.shares = StepShares(queue.tenants, chunk_tokens)
        self.pauses = Pauses(cache, roots, queue.tenants, self.shares, queue.hints)
        self.table = SlotTable(max_running, context_len)
        self.running: list[Sequence] = []
        self._memory = Memory(cache, queue.tenants, self.running)

    @property
    def num_waiting(self) -> int:
        """Sequences that wait."""
        return len(self._queue)

    def num_waiting_of(self, tenant: str) -> int:
        """Sequences of a tenant that wait."""
        return self._queue.tenants.num_waiting(tenant)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for its turn."""
        self._queue.add(sequence)
        self.pauses.arrive(sequence)
        self._is_changed = True

    def expire(self, now: float) -> None:
        """Hold nothing longer than it should be at this second, and load what is due."""
        if self.pauses.expire(now):
            self._is_changed = True

    def schedule(self) -> list[Part]:
        """Admit waiting sequences and choose what the next step computes; slots are allocated.

        May retract running sequences. Empty only when nothing runs, when all that was admitted is
        cached already (a prefill-only call), or when all waits for features of pictures.
        """
        self._admit()
        before = self.num_retracted
        while (victim := self._find_victim()) is not None:
            self.retract(victim, is_memory_short=False)
        if self.num_retracted > before:
            self._admit()
        parts = self._allocate()
        while not parts and not self.features.is_busy and any(s.num_pending for s in self.running):
            self._free_memory()
            parts = self._allocate()
        self._memory.ratio.decay()
        return parts

    def schedule_ahead(self) -> list[Part]:
        """As `schedule`, while the step before is still in flight. A token that this samples can be
        computed next. Retracts nothing: empty also where memory is short, or where all depends on
        the results in flight, or a tenant has to yield to another."""
        self._admit()
        if self._find_victim() is not None:
            return []
        self.shares.plan_features(self.features, self.running, self._chunk_tokens)
        decodes = self._allocate_decodes(self._ready_ahead())
        self._memory.ratio.decay()
        return [] if decodes is None else decodes + self._allocate_prefills(self._chunk_tokens)

    def computed(self, parts: list[Part]) -> None:
        """These parts' KV is in the pool now: prompt tokens are committed, so that others share
        them while the sequence goes on. Parts that became invalid meanwhile are ignored."""
        for part in parts:
            sequence = part.sequence
            if part.epoch != sequence.epoch:
                continue
            sequence.num_computed += part.count
            if part.start < sequence.prompt_len:
                self._commit(sequence)

    def cache_scores(self, sequence: Sequence) -> None:
        """Store the scores of a running sequence's prompt in the cache."""
        lease, start = sequence.lease, sequence.stored_end
        if lease is None or not self._cache.keeps_logprobs:
            return
        if (found := sequence.pop_new_scores(lease.length)) is not None:
            self._cache.keep_logprobs(lease, start, found)

    def drop_in_flight(self) -> None:
        """Free the slots of all tokens that are allocated and not computed."""
        for sequence in self.running:
            if sequence.num_allocated > sequence.num_computed:
                sequence.has_stale_slots = True
                self.trim(sequence)

    def trim(self, sequence: Sequence) -> None:
        """Free the slots after the computed tokens, if tokens were truncated; parts in flight
        become invalid."""
        if not sequence.has_stale_slots:
            return
        sequence.has_stale_slots = False
        sequence.epoch += 1
        lease, count = sequence.lease, sequence.num_computed
        if lease is None or sequence.num_allocated <= count:
            return
        self._is_changed = True
        if lease.length > count:  # what was cached before stays cached, but is not leased any more
            self._free(sequence, lease.length)
            sequence.lease = self._cache.acquire(lease.namespace, sequence.tokens, count)
            self._cache.release(lease)
        else:
            self._free(sequence, count)
        sequence.num_allocated = count

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence; its computed tokens stay in the cache, its parts in flight become
        invalid."""
        self._is_changed = True
        sequence.epoch += 1
        self._queue.leave(sequence)
        if sequence.row < 0:
            self.pauses.discard(sequence)
            return
        self.features.discard(sequence)
        self._commit(sequence)
        assert sequence.lease is not None
        self._free(sequence, sequence.lease.length)
        self.pauses.leave(sequence, sequence.lease)
        self._endings.release(sequence, sequence.lease)
        self.table.give_back(sequence.row)
        self.running.remove(sequence)
        sequence.lease, sequence.row = None, -1
        sequence.num_computed = sequence.num_allocated = 0

    def retract(self, sequence: Sequence, is_memory_short: bool = True) -> None:
        """Send a running sequence back to wait, because memory ran out or another tenant is to run;
        its work stays cached."""
        self._queue.add_first(sequence)
        self.finish(sequence)
        if is_memory_short:
            self._memory.ratio.increase()
        self.num_retracted += 1

    # --- admission -------------------------------------------------------------------------

    def _admit(self) -> None:
        """Algorithm 1: admit waiting sequences by rank, as far as memory allows. Cached prefixes of
        those that do not fit stay locked meanwhile. A tenant may have a chunk uncomputed."""
        if self._is_changed:
            self._use_cached()
        budgets = self._budgets()
        skipped = {name for name, budget in budgets.items() if budget <= 0}
        if not self._has_row or len(skipped) == len(budgets):
            return
        if self.running and not self._is_changed and len(self._roots) >= self._num_roots:
            return
        self._is_changed, self._num_roots = bool(skipped), len(self._roots)
        available = self._memory.num_available
        self._prefilling.reset(self.running)
        self._blocked.clear()
        self.pauses.prepare()
        too_large, refused = list[Lease](), set[str]()  # refused: for whom no pin is released
        for sequence in self._queue.ranked(self._cache, skipped):
            call, name = sequence.job.call, sequence.job.call.owner
            if not self._has_row or name in skipped:
                self._is_changed = True  # for those that were not looked at
                self._cache.fetch(call.namespace, sequence.tokens, sequence.match_limit)
                break
            if self._waits_for_prefix(sequence):
                self._blocked.setdefault(name, 0)
                continue
            num_new = self._memory.ratio.expected(sequence)
            is_overdue = self._queue.is_overdue(sequence)
            reserved = 0 if is_overdue else self.pauses.reserved(sequence)
            needed = sequence.num_ids - sequence.match_len + num_new
            if self.pauses.holds_back(sequence, needed, available, num_new, reserved):
                continue
            before = self._cache.num_available
            lease = self._acquire(sequence)
            available -= before - self._cache.num_available
            needed = sequence.num_ids - lease.length + num_new
            if self.pauses.holds_back(sequence, needed, available, num_new, reserved):
                available += self._memory.give_back(lease)  # those it waits for may need it
                continue
            if needed > available and (is_overdue or name not in refused):
                missing = needed - available
                released = self._roots.make_room(missing, name, self._memory.holders, is_overdue)
                available += released
                if not released:
                    refused.add(name)
            if self._memory.fits(needed, available, self._roots.release_one):
                available = max(0, available - needed)
                self._start(sequence, lease, needed if reserved else 0)
                budgets[name] -= sequence.num_pending
                if budgets[name] <= 0:
                    skipped.add(name)
                    self._is_changed |= self._queue.tenants.are_several
                continue
            self._blocked.setdefault(name, needed)
            too_large.append(lease)
            self.pauses.working_sets.note_locks()
            if is_overdue or len(too_large) == TRIED_PER_STEP:
                break
        for lease in reversed(too_large):  # what is wanted first is evicted last
            self._cache.release(lease)

    @property
    def _has_row(self) -> bool:
        """Whether another may run; a few rows are kept for tenants that were here a moment ago."""
        kept = min(self.shares.num_absent, len(self.table) // 8) if self.running else 0
        return self.table.num_free > kept

    def _budgets(self) -> dict[str, int]:
        """By tenant that waits: uncomputed tokens of sequences that may be admitted for it."""
        names, started = self._queue.tenants.waiting, unallocated(self.running)
        return {name: self._chunk_tokens - started.get(name, 0) for name in names}

    def _acquire(self, sequence: Sequence) -> Lease:
        call, namespace = sequence.job.call, sequence.job.call.namespace
        if sequence.needs_scores or sequence.num_cached_scores:
            found = self._cache.read_logprobs(namespace, *sequence.scores_wanted)
            sequence.add_cached_scores(found)
        return self._cache.acquire(
            namespace, sequence.tokens, sequence.match_limit, call.cache_owner, call.weight
        )

    def _start(self, sequence: Sequence, lease: Lease, needed: int) -> None:
        self.pauses.start(sequence, needed)
        self._queue.admit(sequence, sequence.num_ids - lease.length)
        sequence.lease = lease
        sequence.row = self.table.take_row()
        sequence.num_computed = sequence.num_allocated = lease.length
        if sequence.cached_len is None:
            sequence.cached_len = min(lease.length, sequence.prompt_len)  # forced text may follow
        self.table.write(sequence.row, 0, lease.slots)
        self.running.append(sequence)
        self.features.add(sequence)
        self._prefilling.add(sequence)

    def _use_cached(self) -> None:
        """Let running prompts use what others cached meanwhile; `Prefilling` relies on it."""
        for sequence in self.running:
            lease = sequence.lease
            if lease is None or not sequence.is_between_chunks:
                continue
            limit, start = sequence.match_limit, lease.length
            if self._cache.match(lease.namespace, sequence.tokens, limit).length > start:
                sequence.lease = found = self._acquire(sequence)
                self._cache.release(lease)
                self.table.write(sequence.row, start, found.slots[start:])
                sequence.use_cached(found.length)

    def _waits_for_prefix(self, sequence: Sequence) -> bool:
        """Whether a running one computes a prefix, or scores, that this one would again."""
        if sequence.needs_scores and sequence.match_len == sequence.match_limit:
            return self._cache.keeps_logprobs and self._prefilling.has_scores_of(sequence)
        if sequence.match_node < 0:
            self._queue.match(sequence, self._cache)  # an admission of this step may have split it
        return self._prefilling.has_prefix_of(sequence)

    def _find_victim(self) -> Sequence | None:
        """What to retract where the tenant whose turn it is lacks slots or rows; None: nothing."""
        tenants = self._queue.tenants
        if not tenants.are_several or not (waiting := tenants.waiting):
            return None
        name = tenants.next(waiting)
        needed = self._blocked.get(name)
        if needed is not None and needed > self._memory.num_available:
            return self._memory.holders().victim(name, needed)
        is_served = needed == 0 and is_prefilling(self.running, name)
        if self.table.num_free or is_served or name in self.pauses.held_back:
            return None
        return Holders(self.running, tenants, lambda _: 1).victim(name, 1)

    # --- placing ---------------------------------------------------------------------------

    def _allocate(self) -> list[Part]:
        """One token for each sequence that generates, retracting until these fit, and chunks."""
        self.shares.plan_features(self.features, self.running, self._chunk_tokens)
        while (decodes := self._allocate_decodes(self._ready())) is None:
            self._free_memory()
        return decodes + self._allocate_prefills(self._chunk_tokens)

    def _ready(self) -> list[Sequence]:
        return [s for s in self.running if s.num_unallocated == 1 and self.features.has_next(s)]

    def _ready_ahead(self) -> list[Sequence]:
        """Those with one token to compute, or one in flight, whose id refers to its sample."""
        ready = []
        for sequence in self.running:
            if sequence.has_token_in_flight:
                sequence.ids[sequence.num_ids] = -1 - sequence.sample_index
                ready.append(sequence)
            elif sequence.num_unallocated == 1 and self.features.has_next(sequence):
                ready.append(sequence)
        return ready

    def _allocate_decodes(self, ready: list[Sequence]) -> list[Part] | None:
        """The next token of each that has its turn; None where memory does not hold all."""
        ready = self.shares.rows(self.running, ready)
        if not ready:
            return []
        slots = self._cache.allocate(len(ready))
        if slots is None:
            return None
        starts = [s.num_allocated for s in ready]
        self.table.slots[[s.row for s in ready], starts] = slots
        for sequence in ready:
            sequence.num_allocated += 1
            if self._queue.tenants.are_several:
                self._queue.tenants.charge(sequence.job.call.owner, 1)
        return [Part(s, start, 1, True, s.epoch) for s, start in zip(ready, starts, strict=True)]

    def _allocate_prefills(self, budget: int) -> list[Part]:
        """Chunks of uncomputed prompts, at most `budget` tokens, shared by tenants by weight."""
        parts = []
        budgets = self.shares.chunk_budgets(budget)
        for sequence in self.running:
            if budget <= 0 or sequence.num_unallocated < 2:
                continue
            name = sequence.job.call.owner
            most = budgets.get(name, budget)
            count = min(sequence.num_unallocated, most, self._cache.num_available)
            count = self.features.reach(sequence, count) if sequence.spans else count
            slots = self._cache.allocate(count) if count else None
            if slots is None:
                continue
            start = sequence.num_allocated
            self.table.slots[sequence.row, start : start + count] = slots
            sequence.num_allocated += count
            parts.append(Part.of_prompt(sequence, start, count))
            budget -= count
            if name in budgets:
                budgets[name] -= count
        return parts

    def _free_memory(self) -> None:
        """Release a pinned root of the tenant that holds most, with these, or else retract one of
        its sequences; the last one that runs takes the memory of any root."""
        roots, holders = self._roots, self._memory.holders(self._roots.held())
        is_last = len(self.running) == 1
        if not roots.release_one(holders.largest) and not (is_last and roots.release_one()):
            self.retract(holders.least_of(holders.largest))

    def _free(self, sequence: Sequence, start: int) -> None:
        """Free the slots of a running sequence from position `start` on."""
        if start < sequence.num_allocated:
            self._cache.free(self.table.slots[sequence.row, start : sequence.num_allocated].copy())

    def _commit(self, sequence: Sequence) -> None:
        lease = sequence.lease
        assert lease is not None
        count = sequence.num_computed
        if lease.length >= count:
            return
        self._is_changed = True
        own = self.table.slots[sequence.row, :count]
        slots = self._cache.commit(lease, sequence.ids[:count], own)
        differs = own != slots
        if differs.any():  # others cached the same tokens meanwhile
            start = int(differs.argmax())
            self.table.write(sequence.row, start, slots[start:])
