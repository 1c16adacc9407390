"""The waiting queue: in which order sequences are admitted, and why none starves.

A sequence's rank is its matched length (paper: longest shared prefix first) plus `ageing` tokens
for each sequence admitted before it since it came. A newcomer's match is at most `context_len`, so
it cannot overtake one that has seen `bound` admissions: a sequence is admitted after at most that
many, plus those that were waiting then. A sequence that is overdue and does not fit keeps all
behind it waiting until it does. A root has no privilege: it comes before its branches, because it
matches as much as they do and arrived first; roots prefilled ahead of other programs' branches
would only fill the pool.

Calls whose hint says how much is left of their program rank higher: the least work first (shortest
remaining processing time). Branches of one program have about the same rest, so they join at about
the same time. A long program ages, not only its calls: they rank higher with each admission since
its first call came. Match and this credit together count as `context_len` at most, so the bound
stays.

All this is of one tenant's sequences. Tenants take turns, by what each has got (`tenants`); one
that waits alone is served in exactly this order.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterator

from ..common.ranking import Ranking
from ..radix.cache import RadixCache
from .accounting.first_calls import FirstCalls
from .accounting.tenants import Tenants
from .sequence import Sequence

MATCHES_PER_STEP = 64
_LONG_QUEUE, _MATCHES_OF_A_LONG_QUEUE = 1024, 32  # steps must not take longer for it
TRIED_PER_STEP = 256  # sequences that do not fit, after which no more are tried
_MATCHES_BESIDE_OTHERS = 16  # of each tenant

_HALF = 1024  # generated tokens of a rest that halve the credit
_AGED = 32  # tokens of credit for each admission since a program's first call came


class WaitingQueue:
    """Waiting sequences under one order: "lpm", "dfs", "fcfs" or "random".

    hold_min: shared uncomputed tokens for which a sequence waits on one that computes them.
    hints: whether hints rank calls.
    tenants: of the sequences that wait here or have been admitted, until `leave`.
    """

    def __init__(
        self,
        order: str,
        *,
        ageing: int,
        context_len: int,
        hold_min: int,
        seed: int = 0,
        hints: bool = True,
    ) -> None:
        self._order = order
        self.hints = hints
        self._ageing = ageing
        self._context_len = context_len
        self._random = random.Random(seed)
        self._waiting: dict[Sequence, int] = {}
        self._rankings: dict[str, Ranking[Sequence]] = {}  # of each tenant, under "lpm"
        self._unmatched: dict[str, OrderedDict[Sequence, None]] = {}  # next to match first
        self._rematched: list[Sequence] = []
        self._first_calls = FirstCalls()
        self._last_key = b""
        self._num_added = 0
        self._num_returned = 0
        self.tenants = Tenants()
        self.hold_min = hold_min

    @property
    def bound(self) -> int:
        """Admissions after which no newcomer overtakes a waiting sequence of equal priority."""
        return -(-self._context_len // self._ageing)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Add a sequence; its age counts from now."""
        self._enter(sequence)
        sequence.arrival = self.tenants[sequence.job.call.owner].num_admitted
        sequence.credit = self._credit(sequence) if self.hints else 0
        self._num_added += 1
        self._insert(sequence, self._num_added)

    def _credit(self, sequence: Sequence) -> int:
        """By what is left of its program, or by how long that is here."""
        hint, call = sequence.job.call.hint, sequence.job.call
        if hint is None or hint.program is None:
            return 0
        program = call.namespace, hint.program
        first = self._first_calls.first(call.owner, program, sequence.arrival)
        age = _AGED * (sequence.arrival - first)
        return max(credit(sequence, self._context_len), min(age, self._context_len))

    def add_first(self, sequence: Sequence) -> None:
        """Let a retracted sequence wait again, before those retracted earlier; its age counts from
        its first arrival."""
        self._enter(sequence)
        self._num_returned += 1
        self._insert(sequence, -self._num_returned)

    def _enter(self, sequence: Sequence) -> None:
        call = sequence.job.call
        self.tenants.enter(call.owner, call.weight)

    def _insert(self, sequence: Sequence, number: int) -> None:
        owner = sequence.job.call.owner
        self._waiting[sequence] = number
        unmatched = self._unmatched.setdefault(owner, OrderedDict())
        unmatched[sequence] = None
        unmatched.move_to_end(sequence, last=False)  # a new one is matched first
        if self._order == "lpm":
            self._rankings.setdefault(owner, Ranking(self._rank)).add(sequence)

    def _remove(self, sequence: Sequence) -> None:
        owner = sequence.job.call.owner
        del self._waiting[sequence], self._unmatched[owner][sequence]
        if not self._unmatched[owner]:
            del self._unmatched[owner]
        if self._order == "lpm":
            self._rankings[owner].remove(sequence)
            if not self._rankings[owner]:
                del self._rankings[owner]

    def leave(self, sequence: Sequence) -> None:
        """A sequence that was admitted has ended, or one that waits is to be admitted no more."""
        was_running, is_waiting = sequence.row >= 0, sequence in self._waiting
        if not was_running and is_waiting:
            self._remove(sequence)
        if was_running or is_waiting:
            self.tenants.leave(sequence.job.call.owner, was_running)

    def admit(self, sequence: Sequence, num_tokens: int) -> None:
        """Take it out to run: all others of its tenant age by one. num_tokens: to be computed."""
        self._remove(sequence)
        self.tenants.start(sequence.job.call.owner, num_tokens)
        if self._order == "dfs":
            self._last_key = _dfs_key(sequence)

    def is_overdue(self, sequence: Sequence) -> bool:
        """Whether it has waited so long that no other may be admitted before it."""
        num_admitted = self.tenants[sequence.job.call.owner].num_admitted
        return num_admitted - sequence.arrival >= self.bound

    def match(self, sequence: Sequence, cache: RadixCache) -> None:
        """Note how much of the sequence is cached now, and of its scores."""
        namespace = sequence.job.call.namespace
        sequence.num_cached_scores = 0
        if sequence.needs_scores:
            sequence.num_cached_scores = cache.count_logprobs(namespace, *sequence.scores_wanted)
        match = cache.match(namespace, sequence.tokens, sequence.match_limit)
        if match.length != sequence.match_len:
            self._rematched.append(sequence)
        sequence.match_len, sequence.match_node = match.length, match.node

    def ranked(self, cache: RadixCache, skipped: Collection[str] = ()) -> Iterator[Sequence]:
        """Every waiting sequence, the next to admit first. Matches are updated first; of a long
        queue, those of a part. skipped: tenants whose sequences are left out; may change
        meanwhile."""
        self._match_some(cache)
        if self._order == "lpm":
            ranked = {name: iter(ranking) for name, ranking in self._rankings.items()}
        else:
            ranked = self._by_tenant(self._ordered())
        if not self.tenants.are_several:
            return next(iter(ranked.values()), iter(()))
        return self._in_turn(ranked, skipped)

    def _ordered(self) -> list[Sequence]:
        """All waiting sequences, those that are overdue first."""
        waiting = self._sorted(list(self._waiting))
        overdue = [sequence for sequence in waiting if self.is_overdue(sequence)]
        rest = [sequence for sequence in waiting if not self.is_overdue(sequence)]
        return sorted(overdue, key=lambda sequence: sequence.arrival) + rest

    def _by_tenant(self, ordered: list[Sequence]) -> dict[str, Iterator[Sequence]]:
        queues: dict[str, list[Sequence]] = {}
        for sequence in ordered:
            queues.setdefault(sequence.job.call.owner, []).append(sequence)
        return {name: iter(queue) for name, queue in queues.items()}

    def _in_turn(
        self, ranked: dict[str, Iterator[Sequence]], skipped: Collection[str]
    ) -> Iterator[Sequence]:
        """The sequences of each tenant in their order; tenants by what they have got by then."""
        left = set(ranked)
        while names := [name for name in ranked if name in left and name not in skipped]:
            name = self.tenants.next(names)
            sequence = next(ranked[name], None)
            if sequence is None:
                left.discard(name)
            else:
                yield sequence

    def _sorted(self, waiting: list[Sequence]) -> list[Sequence]:
        waiting.sort(key=self._waiting.__getitem__)
        if self._order == "random":
            self._random.shuffle(waiting)
        elif self._order == "dfs":
            waiting.sort(key=_dfs_key)
            start = bisect_left(waiting, self._last_key, key=_dfs_key)
            waiting = waiting[start:] + waiting[:start]
        waiting.sort(key=lambda sequence: -sequence.job.call.priority)
        return waiting

    def _match_some(self, cache: RadixCache) -> None:
        """Match waiting sequences; of a long queue those that are new, and others in turn. A
        tenant's queue takes little time where another is here."""
        most = _MATCHES_BESIDE_OTHERS if self.tenants.are_several else MATCHES_PER_STEP
        for unmatched in self._unmatched.values():
            is_long = len(unmatched) > _LONG_QUEUE
            most_here = min(most, _MATCHES_OF_A_LONG_QUEUE) if is_long else most
            for _ in range(min(most_here, len(unmatched))):
                sequence, _nothing = unmatched.popitem(last=False)
                unmatched[sequence] = None
                self.match(sequence, cache)
        self._rank_again()

    def _rank_again(self) -> None:
        """Move the sequences that were matched since the last time to their ranks."""
        rematched, self._rematched = self._rematched, []
        if self._order == "lpm":
            for sequence in rematched:
                if sequence in self._waiting:
                    self._rankings[sequence.job.call.owner].changed(sequence)

    def _rank(self, sequence: Sequence) -> tuple[int, int]:
        """Sorts by rank, less the admissions so far, which all have in common. A level of priority
        is worth one context."""
        known = min(sequence.match_len + sequence.credit, self._context_len)
        gained = known - self._ageing * sequence.arrival
        bonus = self._context_len * sequence.job.call.priority
        return -gained - bonus, self._waiting[sequence]


def _dfs_key(sequence: Sequence) -> bytes:
    """Sorts as the depth-first order of the radix tree of all requests (paper, Theorem 3.1)."""
    namespace = sequence.job.call.namespace.encode()
    return namespace + b"\0" + sequence.tokens.astype(">i4").tobytes()


def credit(sequence: Sequence, longest: int) -> int:
    """Tokens by which the hint of a sequence ranks it higher than one of a program that goes on for
    ever: at most `longest`; 0 where it does not say what is left of its program, and for a root
    that is sent ahead: the first call that begins with it computes it as well, and its answer."""
    hint = sequence.job.call.hint
    if hint is None or hint.program is None or hint.tokens_left is None:
        return 0
    if sequence.job.is_prefill_only:
        return 0
    left = max(0, hint.tokens_left) + sequence.rules.max_new
    return longest * _HALF // (_HALF + left)
