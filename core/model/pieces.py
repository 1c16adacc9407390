"""A batch in pieces that are computed one after another, where memory does not do for it whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .batch import Batch, Ints


def pieces(batch: Batch, num_tokens: int) -> Iterator[Batch]:
    """The same tokens in order, at most so many at a time: a sequence may be cut. What a token
    reads is written by its own piece or an earlier one. No piece has draws, and only the first has
    copies."""
    ends = np.cumsum(batch.lens)
    for start in range(0, len(batch.ids), num_tokens):
        yield _piece(batch, ends, start, min(start + num_tokens, len(batch.ids)))


def _piece(batch: Batch, ends: Ints, start: int, end: int) -> Batch:
    """Tokens start:end of a batch."""
    firsts = ends - batch.lens
    mine = np.flatnonzero((firsts < end) & (ends > start))
    skipped = np.maximum(start - firsts[mine], 0)
    sampled, scored, queried = (
        np.flatnonzero((places >= start) & (places < end))
        for places in (batch.sampled, batch.scored, batch.queried)
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
        draws=(),
        scored=batch.scored[scored] - start,
        targets=batch.targets[scored],
        queried=batch.queried[queried] - start,
        queries=tuple(batch.queries[i] for i in queried.tolist()),
        copies=batch.copies if start == 0 else (),
    )
