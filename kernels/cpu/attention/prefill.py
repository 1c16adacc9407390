"""Several new tokens of each sequence over keys in any slots, read where they lie.

What has no copy, no mask and no scores in memory: shares the work of `tiles`, or of `digit_tiles`
and `bfloat_tiles`, out among threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..jit.jit import compiled
from ..parts import Bend, ChunkPart, Into
from .paged import as_array, helpers, name_of

_SPREAD = 1 << 13  # scores of a head from which a second thread is worth its wake-up
_TURNS = 4  # for a thread, so that none waits long for the last
_NO_WINDOW = _ENDLESS = 1 << 30


class _Loop(NamedTuple):
    """lanes: queries of a tile. most_tiles: that share a reading of keys. least: queries of a
    sequence for each head of keys from which it is taken."""

    attend: Callable[..., None]
    lanes: int
    most_tiles: int
    least: int


class ChunkReader:
    """Attention of chunks. num_threads: as torch has, if None. has_tiles: whether the processor's
    tiles are multiplied where that is quicker; None: where it can. dtype: of keys and values."""

    def __init__(
        self,
        num_threads: int | None = None,
        has_tiles: bool | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        from ..loops import tiles

        self._num_threads = num_threads or torch.get_num_threads()
        signature = tiles.SIGNATURES[name_of(dtype)]
        attend = compiled(tiles.attend, signature, is_reordered=False)
        self._loop = _Loop(attend, tiles.LANES, tiles.MOST_TILES, 0)
        self._longer: _Loop | None = None
        by_tiles = _by_tiles(dtype, has_tiles)
        if by_tiles is not None:
            attend = compiled(by_tiles.attend, signature, is_reordered=False)
            self._longer = _Loop(attend, by_tiles.LANES, by_tiles.MOST_TILES, by_tiles.LEAST)
            self._fits = by_tiles.fits

    def attend(
        self,
        q: Tensor,
        kv: Tensor,
        part: ChunkPart,
        bend: Bend,
        into: Into,
        is_merged: bool = False,
    ) -> None:
        """Put what the tokens of a part attend to into their places. is_merged: what stands there
        was found over other keys, and these are added."""
        arrays = q.numpy(), as_array(kv[0]), as_array(kv[1].view(-1)), *into.arrays()
        of_part = part.table, part.rows, part.firsts, part.starts, part.ends, part.bounds
        window = _NO_WINDOW if part.window is None else part.window
        settings = *arrays, *of_part, window, *bend.in_powers()
        num_threads = 1 if part.num_scores < _SPREAD else self._num_threads
        for loop, *lens in self._loops(part, q.shape, kv.shape[1]):
            num_tiles = _tiles_at_once(part, q.shape[1], loop, num_threads)
            of_loop = *settings, num_tiles, part.tokens, is_merged, *lens
            others = [
                helpers(self._num_threads).submit(loop.attend, *of_loop, thread, num_threads)
                for thread in range(1, num_threads)
            ]
            loop.attend(*of_loop, 0, num_threads)
            for other in others:
                other.result()

    def _loops(
        self, part: ChunkPart, shape: torch.Size, num_kv_heads: int
    ) -> list[tuple[_Loop, int, int]]:
        """Which loops read a part, and from how many tokens of a sequence on up to how many."""
        longer = self._longer if self._longer and self._fits(shape[2]) else None
        if longer is None or part.is_rest:
            return [(longer or self._loop, 0, _ENDLESS)]
        group, lens = shape[1] // num_kv_heads, np.diff(part.bounds)
        border = -(-longer.least // group)
        shorter = [(self._loop, 0, border)] if lens.min() < border else []
        return shorter + ([(longer, border, _ENDLESS)] if lens.max() >= border else [])


def _by_tiles(dtype: torch.dtype, is_wanted: bool | None) -> Any:
    """The module of loops that multiply the processor's tiles for such numbers; None for none."""
    from ..jit import amx
    from ..loops import digits

    if dtype is torch.bfloat16:
        from ..loops import bfloat_tiles

        return bfloat_tiles if amx.can_multiply() and is_wanted is not False else None
    if not (digits.can_multiply() if is_wanted is None else is_wanted):
        return None
    from ..loops import digit_tiles

    return digit_tiles


def _tiles_at_once(part: ChunkPart, num_heads: int, loop: _Loop, num_threads: int) -> int:
    """Few enough that every thread gets several turns."""
    if num_threads == 1:
        return loop.most_tiles
    num_tiles = int(part.bounds[-1]) * num_heads // loop.lanes
    return min(max(num_tiles // (num_threads * _TURNS), 1), loop.most_tiles)
