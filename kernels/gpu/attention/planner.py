"""Plans a step's attention from the slot table alone: work items of decode, of extend and of shared
prefixes, as the arrays that kernels read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...interface import Ints, Past
from ...sharing import Run, find_runs
from .decode import KEYS, DecodeItems
from .extend import ExtendItems, queries_per_tile

MAX_SPLITS = 32
LEVEL_ROWS = 8192  # partial results of tokens that the buffer holds
MIN_SPLIT_KEYS = 256  # least keys of a shared root for each program


@dataclass(frozen=True, slots=True)
class Plan:
    """What a step's kernels read. levels: partial results of a token to merge."""

    decodes: DecodeItems | None
    extends: ExtendItems | None
    roots: ExtendItems | None
    levels: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Queries over keys, as `ExtendItems` lists them."""

    tokens: Ints
    slots: Ints
    causal_len: int
    level: int


@dataclass(frozen=True, slots=True)
class Planner:
    """How much work fills a device: num_programs of it. The rest as in `GpuAttention`."""

    num_kv_heads: int
    dtype: torch.dtype
    group: int
    num_programs: int

    def splits(self, count: int, longest: int | None = None, num_tokens: int = 1) -> int:
        """How many programs share the keys of each of `count` decode tokens (split-KV) in a step of
        `num_tokens`; at most one for each block of `longest` keys."""
        if not count:
            return 1
        most = min(MAX_SPLITS, LEVEL_ROWS // num_tokens)
        wanted = min(-(-self.num_programs // (count * self.num_kv_heads)), most)
        blocks = wanted if longest is None else -(-longest // KEYS)
        return max(min(wanted, blocks), 1)

    def tile(self, num_tokens: int) -> int:
        """Queries in a tile for work items of up to `num_tokens` queries."""
        return queries_per_tile(max(num_tokens, 1), self.group, self.dtype)

    def roots(
        self, past: Past, decode_rows: Ints, firsts: Ints, offsets: Ints, splits: int
    ) -> list[WorkItem]:
        """Prefixes that several decode tokens share, each read once, split over programs; moves the
        tokens' offsets past them. Sequences whose window does not reach their start share none."""
        items: list[WorkItem] = []
        levels = np.full(len(past.rows), splits)
        starts = np.where(offsets[decode_rows] > 0, 0, past.starts[decode_rows])
        some = Past(past.table, past.rows[decode_rows], starts, past.lens[decode_rows])
        for run in find_runs(some, np.ones(len(decode_rows), bool)):
            members = decode_rows[list(run.sequences)]
            offsets[members] = run.end
            tokens, level = firsts[members], int(levels[members].max())
            key_splits = np.array_split(run.slots, self._num_splits(run))
            items += [WorkItem(tokens, keys, 0, level + i) for i, keys in enumerate(key_splits)]
            levels[members] = level + len(key_splits)
        return items

    def _num_splits(self, run: Run) -> int:
        """Over how many programs the keys of a root are split."""
        programs = -(-len(run.sequences) // self.tile(len(run.sequences))) * self.num_kv_heads
        wanted = -(-self.num_programs // programs)
        return max(min(wanted, len(run.slots) // MIN_SPLIT_KEYS, MAX_SPLITS), 1)


def first_visible(past: Past, window: int | None) -> Ints:
    """[S] the first key that the last new token of each sequence sees."""
    if window is None:
        return np.zeros(len(past.rows), np.int32)
    return ints(np.maximum(past.starts + past.lens - window, 0))


def extend_item(past: Past, s: int, first: int) -> WorkItem:
    """The new tokens of a sequence, from index `first` of the batch on, over all that it reads."""
    start, length = int(past.starts[s]), int(past.lens[s])
    slots = past.table[past.rows[s], : start + length]
    return WorkItem(np.arange(first, first + length, dtype=np.int32), slots, length, 0)


def decode_arrays(
    past: Past, decode_rows: Ints, firsts: Ints, offsets: Ints, at: int = 0
) -> list[Ints]:
    """The arrays of `DecodeItems`, in its order; their slots begin at `at`."""
    starts, ends = offsets[decode_rows], past.starts[decode_rows] + 1
    spans = zip(past.rows[decode_rows].tolist(), starts.tolist(), ends.tolist(), strict=True)
    slots = concatenated([past.table[row, start:end] for row, start, end in spans])
    lens = ends - starts
    return [
        ints(firsts[decode_rows]),
        ints(at + np.cumsum(lens) - lens - starts),
        starts,
        ends,
        slots,
    ]


def extend_arrays(items: Sequence[WorkItem], tile: int, at: int = 0) -> list[Ints]:
    """The arrays of `ExtendItems`, in its order; their slots begin at `at`."""
    num_tokens = ints(len(item.tokens) for item in items)
    num_keys = ints(len(item.slots) for item in items)
    tiles = -(-num_tokens // tile)
    work = np.repeat(np.arange(len(items)), tiles)
    before = np.repeat(np.cumsum(tiles) - tiles, tiles)
    return [
        concatenated([item.tokens for item in items]),
        concatenated([item.slots for item in items]),
        ints(np.cumsum(num_tokens) - num_tokens),
        ints(at + np.cumsum(num_keys) - num_keys),
        num_tokens,
        num_keys,
        ints(item.causal_len for item in items),
        ints(item.level for item in items),
        ints(work),
        ints((np.arange(len(work)) - before) * tile),
    ]


def ints(numbers: Iterable[int] | Ints) -> Ints:
    """These numbers as int32."""
    source = numbers if isinstance(numbers, np.ndarray) else list(numbers)
    found: Ints = np.asarray(source, np.int32)
    return found


def concatenated(arrays: Sequence[Ints]) -> Ints:
    """One behind the other; of none, an empty one."""
    return np.concatenate(arrays).astype(np.int32, copy=False) if arrays else ints([])
