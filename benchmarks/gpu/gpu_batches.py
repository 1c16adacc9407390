"""Steps of sequences of one length, as the scheduler would hand them to a runner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from forkroot.core.api.batch import GREEDY, Batch, Ints, SamplingParams

Params = tuple[SamplingParams, ...]
# One token is sampled of each row; how, by what cases call it.
SAMPLING = {"greedy": GREEDY, "top-p": SamplingParams(temperature=1.0, top_p=0.9)}
HAS_CHANGES = "changed" in {item.name for item in fields(Batch)}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the tokens of `num` sequences are in a pool: prompts of `context` tokens one after
    another, then those of `room` steps, then a root of `root` tokens. Under a root a sequence reads
    that, then the first `tail` tokens of its own prompt, which are not the same in two of them."""

    num: int
    context: int
    room: int
    root: int
    tail: int
    vocabulary_size: int

    @property
    def num_slots(self) -> int:
        """Of a pool that holds all of them."""
        return self.num * (self.context + self.room) + self.root

    @property
    def width(self) -> int:
        """Columns of every slot table: tokens of the longest sequence."""
        return max(self.context, self.root + self.tail) + self.room

    def table(self, root: int = 0) -> Ints:
        """[num, width] the slot of each token, of sequences under the first `root` of the root's
        tokens or, for 0, under none. One array, as the scheduler's is."""
        return _table(self, root)

    def fills(self, at_once: int) -> Iterator[Batch]:
        """Steps that compute all prompts and the root, about so many tokens in each."""
        rows = np.arange(self.num, dtype=np.int32)
        count = max(1, at_once // self.context)
        for first in range(0, self.num, count):
            some = rows[first : first + count]
            yield self._new(self.table(), some, np.zeros_like(some), self.context)
        table = self.table(self.root) if self.root else self.table()
        for start in range(0, self.root, at_once):
            length = min(at_once, self.root - start)
            yield self._new(table, rows[:1], np.array([start], np.int32), length)

    def decode(self, index: int, batch: int, root: int = 0, params: Params = ()) -> Batch:
        """Decode step `index` of the first `batch` sequences; after the first one it names the
        tokens that the step before sampled."""
        table, rows = self.table(root), np.arange(batch, dtype=np.int32)
        start = (root + self.tail if root else self.context) + index
        found = self._new(table, rows, np.full(batch, start, np.int32), 1, params)
        if not index:
            return found
        return unchanged(replace(found, ids=-1 - np.arange(batch, dtype=np.int64)))

    def extend(self, batch: int, length: int, root: int) -> Batch:
        """`length` new tokens of each of some sequences behind the root. They are written to the
        room of steps, as many steps as they have tokens."""
        rows = np.arange(batch, dtype=np.int32)
        start = root + self.tail if root else self.context
        return self._new(self.table(root), rows, np.full(batch, start, np.int32), length)

    def prefill(self, length: int) -> Batch:
        """A whole prompt of the root's length or less, which computes the root again."""
        row = np.zeros(1, np.int32)
        return self._new(self.table(self.root), row, row, length)

    def mixed(self, batch: int, length: int) -> Batch:
        """Decode steps of some sequences beside a chunk of the root, in row `batch`."""
        decode = self.decode(0, batch)
        chunk = self.prefill(length)
        table = np.concatenate((decode.table[:batch], chunk.table[:1]))
        return replace(
            decode,
            ids=np.concatenate((decode.ids, chunk.ids)),
            positions=np.concatenate((decode.positions, chunk.positions)),
            slots=np.concatenate((decode.slots, chunk.slots)),
            rows=np.arange(batch + 1, dtype=np.int32),
            starts=np.append(decode.starts, chunk.starts),
            lens=np.append(decode.lens, chunk.lens),
            table=np.concatenate((table, decode.table[batch + 1 :])),
        )

    def _new(
        self, table: Ints, rows: Ints, starts: Ints, length: int, params: Params = ()
    ) -> Batch:
        """A step of `length` new tokens of each of these rows, whose ids are random; one token is
        sampled of each."""
        rng, count = np.random.default_rng(int(starts.sum()) + length), len(rows) * length
        positions = starts[:, None] + np.arange(length)
        return Batch(
            ids=rng.integers(5, self.vocabulary_size, count).astype(np.int64),
            positions=positions.ravel().astype(np.int64),
            slots=table[rows[:, None], positions].ravel(),
            rows=rows,
            starts=starts,
            lens=np.full(len(rows), length, np.int32),
            table=table,
            sampled=np.arange(1, len(rows) + 1, dtype=np.int32) * length - 1,
            sampling_params=params or (GREEDY,) * len(rows),
        )


@cache
def _table(of: Layout, root: int) -> Ints:
    prompts = np.arange(of.num * of.context).reshape(of.num, -1)
    steps = np.arange(of.room * of.num).reshape(of.room, -1).T + prompts.size
    parts = [prompts, steps]
    if root:
        shared = np.arange(root) + of.num * (of.context + of.room)
        parts = [np.tile(shared, (of.num, 1)), prompts[:, : of.tail], steps]
    known = np.concatenate(parts, 1)
    padded = np.pad(known, ((0, 0), (0, of.width - known.shape[1])), "edge")
    return padded.astype(np.int32)


def unchanged(batch: Batch) -> Batch:
    """The same table as in the step before, beside the new tokens' slots."""
    if not HAS_CHANGES:
        return batch
    return replace(batch, changed=np.empty((0, 3), np.int32))  # type: ignore[call-arg]


def params_of(kind: str, index: int, batch: int, seed: int) -> Params:
    """How step `index` samples: each row with a seed of its own."""
    if kind == "greedy":
        return (GREEDY,) * batch
    return tuple(replace(SAMPLING[kind], seed=seed + row, index=index) for row in range(batch))
