"""Attention on a GPU: a step cut into what single tokens read, what chunks read, and roots that
several single tokens share, each by its own kernel, put together by their log-sum-exp."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import Ints, Past
from ..sharing import Run, find_runs
from .chunks import Parts, attend_parts, tile_of
from .merge import merge
from .tokens import KEYS, Singles, attend_tokens
from .upload import uploaded

MAX_SPLITS = 32
MIN_PIECE = 256  # keys of a shared root that are worth a program
WAVES = 2  # programs for each multiprocessor
FEW_PROCESSORS = 16  # where there is no GPU to ask: kernels are then run to be checked


@dataclass(frozen=True, slots=True)
class Plan:
    """What a step's kernels read. levels: results of a token that are to be put together."""

    singles: Singles | None
    chunks: Parts | None
    roots: Parts | None
    levels: int


@dataclass(frozen=True, slots=True)
class _Part:
    """Queries over keys, as `Parts` lists them."""

    tokens: Ints
    slots: Ints
    hidden: int
    level: int


class GpuAttention:
    """The `Attention` of a GPU.

    num_kv_heads, dtype: of the pool. group: query heads that share one of these; a wrong one costs
    time. num_programs: at which a kernel fills the device; None: found out.
    """

    def __init__(
        self,
        device: torch.device,
        num_kv_heads: int,
        dtype: torch.dtype,
        group: int = 1,
        num_programs: int | None = None,
    ) -> None:
        self._device = device
        self._num_kv_heads = num_kv_heads
        self._dtype = dtype
        self._group = group
        self._num_programs = num_programs or WAVES * _num_processors(device)

    def plan(self, past: Past, window: int | None = None) -> Plan:
        """As `Attention.plan`."""
        firsts = _ints(np.cumsum(past.lens) - past.lens)
        single, several = (
            _ints(np.flatnonzero(is_it)) for is_it in (past.lens == 1, past.lens > 1)
        )
        offsets = _seen_from(past, window)
        splits = self._splits(offsets[single], past.starts[single] + 1)
        roots = self._roots(past, single, firsts, offsets, splits)
        chunks = [_chunk(past, s, int(firsts[s])) for s in several.tolist()]
        sources = [
            _singles(past, single, firsts, offsets),
            self._tiles(chunks),
            self._tiles(roots),
        ]
        tensors = iter(uploaded([array for source in sources for array in source], self._device))
        given = [[next(tensors) for _ in source] for source in sources]
        return Plan(
            Singles(splits, *given[0]) if len(single) else None,
            Parts(self._tile(chunks), window or 0, *given[1]) if chunks else None,
            Parts(self._tile(roots), 0, *given[2]) if roots else None,
            max([splits if len(single) else 1, *(part.level + 1 for part in roots)]),
        )

    def attend(
        self, q: Tensor, kv: Tensor, plan: Plan, scale: float, softcap: float | None = None
    ) -> Tensor:
        """As `Attention.attend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if plan.levels == 1:
            parts, totals = out[None], q.new_empty((1, *q.shape[:2]), dtype=torch.float32)
        else:
            parts = q.new_empty((plan.levels, *q.shape), dtype=torch.float32)
            totals = q.new_full((plan.levels, *q.shape[:2]), -torch.inf, dtype=torch.float32)
        if plan.singles is not None:
            attend_tokens(q, kv, plan.singles, parts, totals, scale, softcap)
        for some in (plan.chunks, plan.roots):
            if some is not None:
                attend_parts(q, kv, some, parts, totals, scale, softcap)
        if plan.levels > 1:
            merge(parts, totals, out)
        return out

    def _splits(self, firsts: Ints, ends: Ints) -> int:
        """Among how many programs the keys of each single token are divided."""
        if not len(firsts):
            return 1
        wanted = -(-self._num_programs // (len(firsts) * self._num_kv_heads))
        blocks = -(-int((ends - firsts).max()) // KEYS)
        return max(min(wanted, blocks, MAX_SPLITS), 1)

    def _roots(
        self, past: Past, single: Ints, firsts: Ints, offsets: Ints, splits: int
    ) -> list[_Part]:
        """What several single tokens share, read once, in pieces; moves their offsets behind it.
        Sequences whose window ends behind their start are left alone."""
        parts: list[_Part] = []
        levels = np.full(len(past.rows), splits)
        starts = np.where(offsets[single] > 0, 0, past.starts[single])
        some = Past(past.table, past.rows[single], starts, past.lens[single])
        for run in find_runs(some, np.ones(len(single), bool)):
            mine = single[list(run.sequences)]
            offsets[mine] = run.end
            tokens, level = firsts[mine], int(levels[mine].max())
            pieces = np.array_split(run.slots, self._pieces(run))
            parts += [_Part(tokens, piece, 0, level + i) for i, piece in enumerate(pieces)]
            levels[mine] = level + len(pieces)
        return parts

    def _pieces(self, run: Run) -> int:
        """Into how many programs' keys a root is cut."""
        tile = tile_of(len(run.sequences), self._group, self._dtype)
        programs = -(-len(run.sequences) // tile) * self._num_kv_heads
        wanted = -(-self._num_programs // programs)
        return max(min(wanted, len(run.slots) // MIN_PIECE, MAX_SPLITS), 1)

    def _tile(self, parts: Sequence[_Part]) -> int:
        most = max((len(part.tokens) for part in parts), default=1)
        return tile_of(most, self._group, self._dtype)

    def _tiles(self, parts: Sequence[_Part]) -> list[Ints]:
        """The arrays of `Parts`, in its order."""
        tile = self._tile(parts)
        num_tokens = _ints(len(part.tokens) for part in parts)
        num_keys = _ints(len(part.slots) for part in parts)
        tiles = -(-num_tokens // tile)
        work = np.repeat(np.arange(len(parts)), tiles)
        before = np.repeat(np.cumsum(tiles) - tiles, tiles)
        return [
            _joined([part.tokens for part in parts]),
            _joined([part.slots for part in parts]),
            _ints(np.cumsum(num_tokens) - num_tokens),
            _ints(np.cumsum(num_keys) - num_keys),
            num_tokens,
            num_keys,
            _ints(part.hidden for part in parts),
            _ints(part.level for part in parts),
            _ints(work),
            _ints((np.arange(len(work)) - before) * tile),
        ]


def _seen_from(past: Past, window: int | None) -> Ints:
    """[S] the first key that the last new token of each sequence sees."""
    if window is None:
        return np.zeros(len(past.rows), np.int32)
    return _ints(np.maximum(past.starts + past.lens - window, 0))


def _chunk(past: Past, s: int, first: int) -> _Part:
    start, length = int(past.starts[s]), int(past.lens[s])
    slots = past.table[past.rows[s], : start + length]
    return _Part(np.arange(first, first + length, dtype=np.int32), slots, length, 0)


def _singles(past: Past, single: Ints, firsts: Ints, offsets: Ints) -> list[Ints]:
    """The arrays of `Singles`, in its order."""
    ends = past.starts[single] + 1
    longest = int(ends.max(initial=0))
    return [
        _ints(firsts[single]),
        past.table[past.rows[single], :longest],
        _ints(offsets[single]),
        _ints(ends),
    ]


def _ints(numbers: Iterable[int] | Ints) -> Ints:
    source = numbers if isinstance(numbers, np.ndarray) else list(numbers)
    ints: Ints = np.asarray(source, np.int32)
    return ints


def _joined(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate(arrays).astype(np.int32, copy=False) if arrays else _ints([])


def _num_processors(device: torch.device) -> int:
    if device.type != "cuda":
        return FEW_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
