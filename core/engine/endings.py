"""Whether what an ended call has computed is used again: what is not goes first.

It is estimated, for calls that added about as many tokens to what was cached: the tokens of some
ended calls stay in the order of their last use, and how many of these are found again says what to
do with those of the rest. What is never found again in that order is no loss. A hint says more: no
text goes first that its program uses again, and text that it does not use again needs no samples at
the start. Only tokens behind a prefix that is shared already, and no longer than it, go first: a
call that begins something new may be the first of many.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from ..radix.cache import Lease, RadixCache
from .sequence import Sequence

SAMPLED = 8  # ended calls of which one is a sample
FEWEST, MOST = 16, 64  # samples of which an estimate is made
COUNTED = 8  # new samples after which the estimate is made again, once there are FEWEST
RARELY = 0.02  # share of tokens that are found again, at which the rest goes first
MAX_KINDS = 1024


@dataclass(slots=True)
class _Kind:
    """Ended calls of one kind: the samples whose tokens are watched, oldest first, and where the
    tokens of each begin that no other call had. is_rare: whether they are hardly used again; None:
    to be counted."""

    num_ended: int = 0
    num_sampled: int = 0
    samples: deque[tuple[Lease, int]] = field(default_factory=lambda: deque(maxlen=MOST))
    is_rare: bool | None = None

    def is_sample(self, is_known: bool) -> bool:
        """Whether the next call to end is a sample. is_known: by a hint, without any."""
        self.num_ended += 1
        is_early = len(self.samples) < FEWEST and not is_known
        return is_early or self.num_ended % SAMPLED == 0

    def add_sample(self, lease: Lease, start: int) -> None:
        """Watch the tokens of a lease from position `start` on."""
        self.samples.append((lease, start))
        self.num_sampled += 1
        if self.num_sampled <= FEWEST or self.num_sampled % COUNTED == 0:
            self.is_rare = None


class Endings:
    """Releases the leases of sequences.

    hints: whether hints are followed. is_on: False leaves all in the order of the last use.
    """

    def __init__(self, cache: RadixCache, hints: bool = True, is_on: bool = True) -> None:
        self._is_on = is_on
        self._cache = cache
        self._hints = hints
        self._kinds: OrderedDict[tuple[str, int], _Kind] = OrderedDict()

    def release(self, sequence: Sequence, lease: Lease) -> None:
        """Release the lease of a sequence that has ended, or is retracted."""
        start = sequence.cached_len or 0
        has_ended = sequence.ending is not None and not sequence.is_aborted
        if not self._is_on or not has_ended or sequence.job.is_prefill_only:
            self._cache.release(lease)
        elif lease.length <= 2 * start and self._is_last_use(sequence, lease, start):
            self._cache.release_last(lease)
        else:
            self._cache.release(lease)

    def _is_last_use(self, sequence: Sequence, lease: Lease, start: int) -> bool:
        """Whether nobody is expected to use the tokens from position `start` on again."""
        hint = sequence.job.call.hint if self._hints else None
        next_use = None if hint is None else hint.next_use
        if next_use is not None and next_use > 0:
            return False
        kind = self._kind(sequence.job.call.owner, lease.length - start)
        if kind.is_sample(is_known=next_use is not None):
            kind.add_sample(lease, start)
            return False
        if kind.is_rare is None:
            found = [self._cache.count_reused(*sample) for sample in kind.samples]
            kind.is_rare = sum(it.reused for it in found) <= RARELY * sum(it.own for it in found)
        return kind.is_rare

    def _kind(self, tenant: str, num_own: int) -> _Kind:
        key = tenant, num_own.bit_length()
        kind = self._kinds.setdefault(key, _Kind())
        self._kinds.move_to_end(key)
        if len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)
        return kind
