"""Extend attention: several new tokens of each sequence over keys in any slots, read in place.

No copy, no mask and no scores in memory. Distributes the work of `extend_attention`, or of
`int8_extend_attention` and `bf16_extend_attention`, over threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..jit.jit import compiled
from ..threads import run_all
from ..work_items import AttentionOutput, ExtendItem, ScoreMod
from .decode import as_array, name_of

_SPREAD = 1 << 23  # multiplications of queries and keys from which a second thread is worth waking
_TASKS = 4  # for each thread, so that none waits long for the last
NO_WINDOW = _ENDLESS = 1 << 30


class _Loop(NamedTuple):
    """lanes: queries of a tile. max_tiles: that share one read of the keys. least: queries of a
    sequence for each KV head from which it is used."""

    attend: Callable[..., None]
    lanes: int
    max_tiles: int
    least: int


class ExtendAttention:
    """Attention of extend tokens. num_threads: torch's, if None. has_amx: whether AMX is used
    where it is faster; None: where it can be. dtype: of keys and values."""

    def __init__(
        self,
        num_threads: int | None = None,
        has_amx: bool | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        from ..loops import extend_attention

        self._num_threads = num_threads or torch.get_num_threads()
        signature = extend_attention.SIGNATURES[name_of(dtype)]
        attend = compiled(extend_attention.attend, signature, is_reordered=False)
        self._loop = _Loop(attend, extend_attention.LANES, extend_attention.MAX_TILES, 0)
        self._longer: _Loop | None = None
        amx_loops = _amx_loops(dtype, has_amx)
        if amx_loops is not None:
            attend = compiled(amx_loops.attend, signature, is_reordered=False)
            self._longer = _Loop(attend, amx_loops.LANES, amx_loops.MAX_TILES, amx_loops.LEAST)
            self._fits = amx_loops.fits

    def attend(
        self,
        q: Tensor,
        kv: Tensor,
        item: ExtendItem,
        score_mod: ScoreMod,
        output: AttentionOutput,
        is_merged: bool = False,
    ) -> None:
        """Write the attention of an item's tokens to the output. is_merged: merge it with what is
        there, which was computed over other keys."""
        arrays = q.numpy(), as_array(kv[0]), as_array(kv[1].view(-1)), *output.arrays()
        of_item = item.table, item.rows, item.firsts, item.starts, item.ends, item.bounds
        window = NO_WINDOW if item.window is None else item.window
        settings = *arrays, *of_item, window, *score_mod.in_log2()
        is_small = item.num_scores * q.shape[1] * q.shape[2] < _SPREAD
        num_threads = 1 if is_small else self._num_threads
        for loop, *lens in self._loops(item, q.shape, kv.shape[1]):
            num_tiles = _tiles_at_once(item, q.shape[1], loop, num_threads)
            of_loop = *settings, num_tiles, item.tokens, is_merged, *lens
            parts = [(*of_loop, thread, num_threads) for thread in range(num_threads)]
            run_all(self._num_threads, loop.attend, parts)

    def _loops(
        self, item: ExtendItem, shape: torch.Size, num_kv_heads: int
    ) -> list[tuple[_Loop, int, int]]:
        """Which loops read an item, and from how many tokens of a sequence on up to how many."""
        longer = self._longer if self._longer and self._fits(shape[2]) else None
        if longer is None or item.is_rest:
            return [(longer or self._loop, 0, _ENDLESS)]
        group, lens = shape[1] // num_kv_heads, np.diff(item.bounds)
        border = -(-longer.least // group)
        shorter = [(self._loop, 0, border)] if lens.min() < border else []
        return shorter + ([(longer, border, _ENDLESS)] if lens.max() >= border else [])


def has_longer_loops(dtype: torch.dtype) -> bool:
    """Whether AMX reads such keys and values for long sequences."""
    return _amx_loops(dtype, None) is not None


def _amx_loops(dtype: torch.dtype, is_wanted: bool | None) -> Any:
    """The module of AMX loops for such numbers; None for none."""
    from ..jit import amx
    from ..loops import bf16_extend_attention, int8_extend_attention, int8_split

    if dtype is torch.bfloat16:
        return bf16_extend_attention if amx.can_multiply() and is_wanted is not False else None
    if dtype is not torch.float32:
        return None
    has_amx = int8_split.can_multiply() if is_wanted is None else is_wanted
    return int8_extend_attention if has_amx else None


def _tiles_at_once(item: ExtendItem, num_heads: int, loop: _Loop, num_threads: int) -> int:
    """Few enough that every thread gets several tasks."""
    if num_threads == 1:
        return loop.max_tiles
    num_tiles = int(item.bounds[-1]) * num_heads // loop.lanes
    return min(max(num_tiles // (num_threads * _TASKS), 1), loop.max_tiles)
