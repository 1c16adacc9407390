"""Cuts a step's attention, by the slot table alone, into what single tokens read, what chunks read
and what several single tokens share; and writes each as the arrays that kernels read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...interface import Ints, Past
from ...sharing import Run, find_runs
from .chunks import Parts, tile_of
from .tokens import KEYS, Singles

MAX_SPLITS = 32
LEVEL_ROWS = 8192  # tokens, each as often as keys are split, whose results have room
MIN_PIECE = 256  # keys of a shared root that are worth a program


@dataclass(frozen=True, slots=True)
class Plan:
    """What a step's kernels read. levels: results of a token that are to be put together."""

    singles: Singles | None
    chunks: Parts | None
    roots: Parts | None
    levels: int


@dataclass(frozen=True, slots=True)
class Part:
    """Queries over keys, as `Parts` lists them."""

    tokens: Ints
    slots: Ints
    hidden: int
    level: int


@dataclass(frozen=True, slots=True)
class Cutter:
    """How much work fills a device: num_programs of it. The rest as in `GpuAttention`."""

    num_kv_heads: int
    dtype: torch.dtype
    group: int
    num_programs: int

    def splits(self, count: int, longest: int | None = None, num_tokens: int = 1) -> int:
        """Among how many programs the keys of each of `count` single tokens are divided, in a step
        of `num_tokens`; no more than `longest` keys are worth."""
        if not count:
            return 1
        most = min(MAX_SPLITS, LEVEL_ROWS // num_tokens)
        wanted = min(-(-self.num_programs // (count * self.num_kv_heads)), most)
        blocks = wanted if longest is None else -(-longest // KEYS)
        return max(min(wanted, blocks), 1)

    def tile(self, num_tokens: int) -> int:
        """Queries in a tile for parts of up to so many."""
        return tile_of(max(num_tokens, 1), self.group, self.dtype)

    def roots(
        self, past: Past, single: Ints, firsts: Ints, offsets: Ints, splits: int
    ) -> list[Part]:
        """What several single tokens share, read once, in pieces; moves their offsets behind it.
        Sequences whose window ends behind their start are left alone."""
        parts: list[Part] = []
        levels = np.full(len(past.rows), splits)
        starts = np.where(offsets[single] > 0, 0, past.starts[single])
        some = Past(past.table, past.rows[single], starts, past.lens[single])
        for run in find_runs(some, np.ones(len(single), bool)):
            mine = single[list(run.sequences)]
            offsets[mine] = run.end
            tokens, level = firsts[mine], int(levels[mine].max())
            pieces = np.array_split(run.slots, self._pieces(run))
            parts += [Part(tokens, piece, 0, level + i) for i, piece in enumerate(pieces)]
            levels[mine] = level + len(pieces)
        return parts

    def _pieces(self, run: Run) -> int:
        """Into how many programs' keys a root is cut."""
        programs = -(-len(run.sequences) // self.tile(len(run.sequences))) * self.num_kv_heads
        wanted = -(-self.num_programs // programs)
        return max(min(wanted, len(run.slots) // MIN_PIECE, MAX_SPLITS), 1)


def seen_from(past: Past, window: int | None) -> Ints:
    """[S] the first key that the last new token of each sequence sees."""
    if window is None:
        return np.zeros(len(past.rows), np.int32)
    return ints(np.maximum(past.starts + past.lens - window, 0))


def chunk_of(past: Past, s: int, first: int) -> Part:
    """The new tokens of a sequence, from place `first` of the batch on, over all that it reads."""
    start, length = int(past.starts[s]), int(past.lens[s])
    slots = past.table[past.rows[s], : start + length]
    return Part(np.arange(first, first + length, dtype=np.int32), slots, length, 0)


def singles_of(past: Past, single: Ints, firsts: Ints, offsets: Ints, at: int = 0) -> list[Ints]:
    """The arrays of `Singles`, in its order; their slots stand from `at` on."""
    starts, ends = offsets[single], past.starts[single] + 1
    spans = zip(past.rows[single].tolist(), starts.tolist(), ends.tolist(), strict=True)
    slots = joined([past.table[row, start:end] for row, start, end in spans])
    lens = ends - starts
    return [ints(firsts[single]), ints(at + np.cumsum(lens) - lens - starts), starts, ends, slots]


def parts_of(parts: Sequence[Part], tile: int, at: int = 0) -> list[Ints]:
    """The arrays of `Parts`, in its order; their slots stand from `at` on."""
    num_tokens = ints(len(part.tokens) for part in parts)
    num_keys = ints(len(part.slots) for part in parts)
    tiles = -(-num_tokens // tile)
    work = np.repeat(np.arange(len(parts)), tiles)
    before = np.repeat(np.cumsum(tiles) - tiles, tiles)
    return [
        joined([part.tokens for part in parts]),
        joined([part.slots for part in parts]),
        ints(np.cumsum(num_tokens) - num_tokens),
        ints(at + np.cumsum(num_keys) - num_keys),
        num_tokens,
        num_keys,
        ints(part.hidden for part in parts),
        ints(part.level for part in parts),
        ints(work),
        ints((np.arange(len(work)) - before) * tile),
    ]


def ints(numbers: Iterable[int] | Ints) -> Ints:
    """These numbers as int32."""
    source = numbers if isinstance(numbers, np.ndarray) else list(numbers)
    found: Ints = np.asarray(source, np.int32)
    return found


def joined(arrays: Sequence[Ints]) -> Ints:
    """One behind the other; of none, an empty one."""
    return np.concatenate(arrays).astype(np.int32, copy=False) if arrays else ints([])
