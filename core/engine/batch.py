"""Builds the batch of a step from the parts of its sequences, and reads results from its outcome.

It decides nothing: the scheduler chooses which tokens are computed, and in which slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..api.batch import Batch, Ints, Longs, Outcome, Query
from ..api.media import MediaSpan
from ..api.protocol import TokenLogprob
from ..radix.host import HostTier
from .pictures.features import Work
from .pictures.prompt import rotary_positions, spans_from
from .sequence import Sequence

_NOTHING = range(0)
_NO_WORK = Work()


@dataclass(slots=True)
class Part:
    """A sequence's share of a step: `count` tokens from position `start` on. Never changed; see
    `SamplingParams`.

    is_last: they are the last of its sequence, including a token still in flight: after them a
      token is sampled, or a query is answered.
    epoch: its sequence's when its slots were allocated.
    scored: positions whose successors are to be scored.
    """

    sequence: Sequence
    start: int
    count: int
    is_last: bool
    epoch: int
    scored: range = _NOTHING

    @classmethod
    def of_prompt(cls, sequence: Sequence, start: int, count: int) -> Part:
        """A chunk of tokens that are known."""
        end = start + count
        first, last = max(start, sequence.next_scored), min(end, sequence.prompt_len - 1)
        is_last = end == sequence.num_ids
        return cls(sequence, start, count, is_last, sequence.epoch, range(first, last))

    @property
    def is_live(self) -> bool:
        """Whether its sequence still has these tokens in these slots."""
        return self.epoch == self.sequence.epoch

    @property
    def is_sampling(self) -> bool:
        """Whether a token is sampled after it."""
        return self.is_last and self.sequence.is_generating

    @property
    def is_wanted(self) -> bool:
        """Whether the token sampled after it is its sequence's next: nothing was forced meanwhile.
        Valid once the results of the step before are applied."""
        sequence = self.sequence
        return self.epoch == sequence.epoch and self.start + self.count == sequence.num_ids


def write_batch(
    parts: list[Part],
    table: Ints,
    host: HostTier | None,
    has_params: bool,
    changed: Ints,
    work: Work = _NO_WORK,
) -> Batch:
    """The forward pass over these parts, whose slots are in the table; a token in flight is
    a reference that the scheduler wrote. Sets `sample_index` of each sequence that samples, and
    takes the pending copies of the host tier. has_params: the sampling parameters are known
    already. changed: as in `Batch`. work: what it does beside computing tokens."""
    are_single = all(part.count == 1 for part in parts)
    ids, positions, starts, lens = (_decodes if are_single else _chunks)(parts)
    ends = np.cumsum(lens, dtype=np.int32)
    sequences = [part.sequence for part in parts]
    rows = np.array([sequence.row for sequence in sequences], np.int32)
    sampling = [
        i
        for i, (part, sequence) in enumerate(zip(parts, sequences, strict=True))
        if part.is_last and sequence.is_generating
    ]
    for index, i in enumerate(sampling):
        sequences[i].sample_index = index
    scored, targets, num_top_logprobs = _score_plan(parts, ends - lens)
    has_pictures = any(sequence.spans for sequence in sequences)
    queried = [
        (i, node)
        for i, sequence in enumerate(sequences)
        if (node := sequence.node) is not None and parts[i].is_last
    ]
    return Batch(
        ids=ids,
        positions=positions.astype(np.int64),
        slots=table[rows if are_single else np.repeat(rows, lens), positions],
        rows=rows,
        starts=starts,
        lens=lens,
        table=table,
        sampled=ends[sampling] - 1,
        sampling_params=tuple([sequences[i].sampling_params() for i in sampling])
        if has_params
        else (),
        scored=scored,
        targets=targets,
        num_top_logprobs=num_top_logprobs,
        queried=ends[[i for i, _ in queried]] - 1,
        queries=tuple([Query(np.array(it.tokens, np.int64), it.sets) for _, it in queried]),
        copies=() if host is None else host.take_copies(),
        changed=changed,
        dropped=work.dropped,
        encodes=work.encodes,
        media=_media(parts, ends - lens) if has_pictures else (),
        parts=_rotary(parts) if has_pictures else None,
    )


def read_logprob(outcome: Outcome, index: int) -> TokenLogprob:
    """The log-probabilities of a sampled token."""
    top = outcome.tops[index] if outcome.tops else ()
    return TokenLogprob(int(outcome.tokens[index]), float(outcome.logprobs[index]), top)


def _decodes(parts: list[Part]) -> tuple[Longs, Ints, Ints, Ints]:
    """Ids, positions, starts and lengths of parts of one token each."""
    starts = np.array([part.start for part in parts], np.int32)
    ids = [part.sequence.ids[part.start] for part in parts]
    return np.array(ids, np.int64), starts, starts, np.ones(len(parts), np.int32)


def _chunks(parts: list[Part]) -> tuple[Longs, Ints, Ints, Ints]:
    """Ids, positions, starts and lengths of parts of any size."""
    spans = [(part.sequence, part.start, part.start + part.count) for part in parts]
    return (
        np.concatenate([s.ids[start:end] for s, start, end in spans]).astype(np.int64),
        np.concatenate([np.arange(start, end, dtype=np.int32) for _, start, end in spans]),
        np.array([start for _, start, _ in spans], np.int32),
        np.array([part.count for part in parts], np.int32),
    )


def _media(parts: list[Part], offsets: Ints) -> tuple[MediaSpan, ...]:
    """Which of the batch's ids are features of pictures."""
    found: list[MediaSpan] = []
    for part, offset in zip(parts, offsets.tolist(), strict=True):
        spans = part.sequence.spans
        if not spans or part.start >= spans[-1].end:
            continue
        shift, last = offset - part.start, part.start + part.count
        for span in spans[spans_from(spans, part.start) :]:
            start, end = max(span.start, part.start), min(span.end, last)
            if start >= end:
                break
            first = span.offset + start - span.start
            found.append(MediaSpan(start + shift, end + shift, span.picture.key, first))
    return tuple(found)


def _rotary(parts: list[Part]) -> Longs | None:
    """[3, T] rotary positions of the batch's ids, where those of any sequence have three parts."""
    if all(part.sequence.parts is None for part in parts):
        return None
    found = [rotary_positions(it.sequence.parts, it.start, it.start + it.count) for it in parts]
    return np.concatenate(found, axis=1)


def _score_plan(parts: list[Part], offsets: Ints) -> tuple[Ints, Longs, int]:
    """Which tokens of the batch have a successor to be scored, these, and the top_logprobs
    count."""
    scored: list[Ints] = []
    targets: list[Longs] = []
    num_top_logprobs = 0
    for part, offset in zip(parts, offsets.tolist(), strict=True):
        if not part.scored:
            continue
        first, last = part.scored.start, part.scored.stop
        num_top_logprobs = max(num_top_logprobs, part.sequence.num_top_logprobs)
        scored.append(np.arange(first, last, dtype=np.int32) - part.start + offset)
        targets.append(part.sequence.ids[first + 1 : last + 1].astype(np.int64))
    if not scored:
        return np.empty(0, np.int32), np.empty(0, np.int64), 0
    return np.concatenate(scored), np.concatenate(targets), num_top_logprobs
