"""The waiting queue: in which order sequences are admitted, and why none starves.

A sequence's rank is its matched length (paper: longest shared prefix first) plus `ageing` tokens
for each sequence admitted before it since it came. A newcomer's match is at most `context_len`, so
it cannot overtake one that has seen `bound` admissions: a sequence is admitted after at most that
many, plus those that were waiting then. A sequence that is overdue and does not fit keeps all
behind it waiting until it does. A root has no privilege: it comes before its branches, because it
matches as much as they do and arrived first; roots prefilled ahead of other programs' branches
would only fill the pool.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator

from ..radix.cache import RadixCache
from .sequence import Sequence

MATCHES_PER_STEP = 256


class WaitingQueue:
    """Waiting sequences under one order: "lpm", "dfs", "fcfs" or "random".

    hold_min: shared uncomputed tokens for which a sequence waits on one that computes them.
    """

    def __init__(
        self, order: str, *, ageing: int, context_len: int, hold_min: int, seed: int = 0
    ) -> None:
        self._order = order
        self._ageing = ageing
        self._context_len = context_len
        self._random = random.Random(seed)
        self._waiting: dict[Sequence, int] = {}
        self._num_matched = 0
        self._last_key = b""
        self._num_added = 0
        self._num_returned = 0
        self._num_admitted = 0
        self.hold_min = hold_min

    @property
    def bound(self) -> int:
        """Admissions after which no newcomer overtakes a waiting sequence of equal priority."""
        return -(-self._context_len // self._ageing)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Add a sequence; its age counts from now."""
        sequence.arrival = self._num_admitted
        self._num_added += 1
        self._waiting[sequence] = self._num_added

    def add_first(self, sequence: Sequence) -> None:
        """Let a retracted sequence wait again, before those retracted earlier; its age counts from
        its first arrival."""
        self._num_returned += 1
        self._waiting[sequence] = -self._num_returned

    def remove(self, sequence: Sequence) -> None:
        """Take it out without admitting it."""
        self._waiting.pop(sequence, None)

    def admit(self, sequence: Sequence) -> None:
        """Take it out to run: all others age by one."""
        del self._waiting[sequence]
        self._num_admitted += 1
        if self._order == "dfs":
            self._last_key = _dfs_key(sequence)

    def is_overdue(self, sequence: Sequence) -> bool:
        """Whether it has waited so long that no other may be admitted before it."""
        return self._num_admitted - sequence.arrival >= self.bound

    def match(self, sequence: Sequence, cache: RadixCache) -> None:
        """Note how much of the sequence is cached now, and of its scores."""
        namespace = sequence.job.call.namespace
        sequence.num_cached_scores = 0
        if sequence.needs_scores:
            sequence.num_cached_scores = cache.count_logprobs(namespace, *sequence.scores_wanted)
        match = cache.match(namespace, sequence.tokens, sequence.match_limit)
        sequence.match_len, sequence.match_node = match.length, match.node

    def ranked(self, cache: RadixCache) -> Iterator[Sequence]:
        """Every waiting sequence, the next to admit first. Matches are updated first; of a long
        queue, those of a part."""
        waiting = list(self._waiting)
        self._match_some(waiting, cache)
        if self._order == "lpm":
            waiting.sort(key=self._rank)
            return iter(waiting)
        waiting = self._sorted(waiting)
        overdue = [sequence for sequence in waiting if self.is_overdue(sequence)]
        rest = [sequence for sequence in waiting if not self.is_overdue(sequence)]
        return iter(sorted(overdue, key=lambda sequence: sequence.arrival) + rest)

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

    def _match_some(self, waiting: list[Sequence], cache: RadixCache) -> None:
        """Match waiting sequences; of a long queue, a part in each step, in turn."""
        if len(waiting) > MATCHES_PER_STEP:
            start = self._num_matched % len(waiting)
            self._num_matched += MATCHES_PER_STEP
            waiting = (waiting + waiting)[start : start + MATCHES_PER_STEP]
        for sequence in waiting:
            self.match(sequence, cache)

    def _rank(self, sequence: Sequence) -> tuple[int, int]:
        """Sorts by rank, less the admissions so far, which all have in common. A level of priority
        is worth one context."""
        gained = sequence.match_len - self._ageing * sequence.arrival
        bonus = self._context_len * sequence.job.call.priority
        return -gained - bonus, self._waiting[sequence]


def _dfs_key(sequence: Sequence) -> bytes:
    """Sorts as the depth-first order of the radix tree of all requests (paper, Theorem 3.1)."""
    namespace = sequence.job.call.namespace.encode()
    return namespace + b"\0" + sequence.tokens.astype(">i4").tobytes()
