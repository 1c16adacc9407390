"""Batches of sequences of one length, as the scheduler would hand them to a runner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forkroot.core.api.batch import GREEDY, Batch


@dataclass(frozen=True, slots=True)
class Sequences:
    """Prompts of `context` tokens, and room for so many more; slots lie as the engine places them:
    a prompt's after one another, then those of each step."""

    num: int
    context: int
    room: int
    vocabulary_size: int

    @property
    def num_slots(self) -> int:
        """Of a pool that holds all of them."""
        return self.num * (self.context + self.room)

    def table(self) -> np.ndarray:
        """[num, context + room] the slot of each token."""
        prompts = np.arange(self.num * self.context).reshape(self.num, -1)
        steps = np.arange(self.room * self.num).reshape(self.room, -1).T + prompts.size
        return np.concatenate((prompts, steps), 1).astype(np.int32)

    def prompts(self, at_once: int) -> Iterator[Batch]:
        """All prompts, random tokens, so many in a batch."""
        rng, table = np.random.default_rng(self.num), self.table()
        for first in range(0, self.num, at_once):
            rows = np.arange(first, min(first + at_once, self.num), dtype=np.int32)
            positions = np.tile(np.arange(self.context), len(rows)).astype(np.int64)
            yield Batch(
                ids=rng.integers(5, self.vocabulary_size, len(positions)).astype(np.int64),
                positions=positions,
                slots=table[rows, : self.context].ravel(),
                rows=rows,
                starts=np.zeros(len(rows), np.int32),
                lens=np.full(len(rows), self.context, np.int32),
                table=table,
                sampled=np.arange(1, len(rows) + 1, dtype=np.int32) * self.context - 1,
                sampling_params=(GREEDY,) * len(rows),
            )

    def step(self, index: int, batch: int) -> Batch:
        """Decode step `index` of the first `batch` sequences."""
        table, at = self.table(), self.context + index
        return Batch(
            ids=np.arange(batch, dtype=np.int64) + 5,
            positions=np.full(batch, at, np.int64),
            slots=table[:batch, at].copy(),
            rows=np.arange(batch, dtype=np.int32),
            starts=np.full(batch, at, np.int32),
            lens=np.ones(batch, np.int32),
            table=table,
            sampled=np.arange(batch, dtype=np.int32),
            sampling_params=(GREEDY,) * batch,
        )
