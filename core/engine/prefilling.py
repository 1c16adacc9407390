"""What running sequences compute now, so that others that want the same wait for it.

Knows nothing of memory or of the order of waiting sequences.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..common.prefixes import common_prefix_len
from .sequence import Sequence


class Prefilling:
    """The prompts and scores that running sequences have not committed yet.

    hold_min: shared tokens for which another sequence waits, at least.
    """

    def __init__(self, hold_min: int) -> None:
        self._hold_min = hold_min
        self._prefixes: dict[tuple[int, int], list[Sequence]] = {}
        self._scores: dict[int, list[Sequence]] = {}

    def reset(self, running: Iterable[Sequence]) -> None:
        """Hold those of these sequences, and no others."""
        self._prefixes.clear()
        self._scores.clear()
        for sequence in running:
            self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        """Note the node of the tree to which this sequence's uncommitted prompt tokens belong: the
        end of its lease, which has to cover all that is cached of its prompt."""
        lease = sequence.lease
        if lease is not None and lease.node >= 0 and sequence.num_pending > 1:
            key = lease.node, int(sequence.ids[lease.length])
            self._prefixes.setdefault(key, []).append(sequence)
            if sequence.score_start is not None and sequence.stored_end < sequence.prompt_len:
                key_hash = sequence.prefix_hash(sequence.stored_end - 1)
                self._scores.setdefault(key_hash, []).append(sequence)

    def has_prefix_of(self, sequence: Sequence) -> bool:
        """Whether a prefix is computed that this sequence would compute again after its match."""
        start, limit = sequence.match_len, sequence.match_limit
        if start >= limit or sequence.match_node < 0:
            return False
        others = self._prefixes.get((sequence.match_node, int(sequence.ids[start])), ())
        wanted = sequence.ids[start:limit]
        return any(
            common_prefix_len(wanted, other.tokens[start:]) >= self._hold_min for other in others
        )

    def has_scores_of(self, sequence: Sequence) -> bool:
        """Whether the next scores that this sequence wants are computed."""
        start, limit = sequence.match_limit, sequence.full_limit
        others = self._scores.get(sequence.prefix_hash(start), ())
        wanted, min_len = sequence.ids[start:limit], 1 + self._hold_min
        return any(
            other.num_top_logprobs >= sequence.num_top_logprobs
            and common_prefix_len(wanted, other.ids[start : other.prompt_len]) >= min_len
            for other in others
        )
