"""Splits a batch into micro-batches that run one after another, where memory is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ...api.batch import Batch, Ints, Outcome
from ...api.media import MediaSpan

NUM_MICRO_BATCHES = 4  # where memory is short


def micro_batches(batch: Batch, num_tokens: int, has_params: bool = False) -> Iterator[Batch]:
    """The same tokens in order, at most `num_tokens` in each: a sequence may be split. The KV that
    a token reads is written by its own micro-batch or an earlier one. Only the first has copies,
    and drops and encodes pictures.
    has_params: each gets its part of the sampling parameters; else none has any."""
    ends, num_sampled = np.cumsum(batch.lens), 0
    for start in range(0, max(1, len(batch.ids)), max(1, num_tokens)):
        part = _tokens_of(batch, ends, start, min(start + num_tokens, len(batch.ids)))
        if has_params:
            count = len(part.sampled)
            part = replace(
                part, sampling_params=batch.sampling_params[num_sampled : num_sampled + count]
            )
            num_sampled += count
        yield part


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of the whole batch, from those of its micro-batches in order."""
    if any(len(outcome.log_masses) for outcome in outcomes):
        outcomes = [  # a log-mass of 0 for each token, where there is none
            it
            if len(it.log_masses)
            else replace(it, log_masses=np.zeros(len(it.tokens), np.float32))
            for it in outcomes
        ]
    found: dict[str, Any] = {}
    for field in fields(Outcome):
        parts = [getattr(outcome, field.name) for outcome in outcomes]
        is_array = isinstance(parts[0], np.ndarray)
        found[field.name] = np.concatenate(parts) if is_array else sum(parts, ())
    return Outcome(**found)


def _tokens_of(batch: Batch, ends: Ints, start: int, end: int) -> Batch:
    """Tokens start:end of a batch."""
    firsts = ends - batch.lens
    mine = np.flatnonzero((firsts < end) & (ends > start))
    skipped = np.maximum(start - firsts[mine], 0)
    sampled, scored, queried = (
        np.flatnonzero((indices >= start) & (indices < end))
        for indices in (batch.sampled, batch.scored, batch.queried)
    )
    return replace(
        batch,
        ids=batch.ids[start:end],
        positions=batch.positions[start:end],
        slots=batch.slots[start:end],
        rows=batch.rows[mine],
        starts=(batch.starts[mine] + skipped).astype(np.int32),
        lens=(np.minimum(ends[mine], end) - firsts[mine] - skipped).astype(np.int32),
        sampled=batch.sampled[sampled] - start,
        sampling_params=(),
        scored=batch.scored[scored] - start,
        targets=batch.targets[scored],
        queried=batch.queried[queried] - start,
        queries=tuple(batch.queries[i] for i in queried.tolist()),
        copies=batch.copies if start == 0 else (),
        dropped=batch.dropped if start == 0 else (),
        encodes=batch.encodes if start == 0 else (),
        media=tuple(_spans_of(batch, start, end)),
        parts=None if batch.parts is None else batch.parts[:, start:end],
    )


def _spans_of(batch: Batch, start: int, end: int) -> Iterator[MediaSpan]:
    """Features of pictures among these tokens."""
    for span in batch.media:
        first, last = max(span.start, start), min(span.end, end)
        if first < last:
            offset = span.offset + first - span.start
            yield MediaSpan(first - start, last - start, span.digest, offset)
