"""Several new tokens of each sequence over keys in any slots, read where they lie.

What has no copy, no mask and no scores in memory: shares the work of `tiles`, or of `digit_tiles`,
out among threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .paged import compiled, helpers
from .parts import Bend, ChunkPart, Into

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
    """Attention of chunks. num_threads: as torch has, if None. has_digits: whether numbers are
    multiplied as digits where that is quicker; None: where the processor can."""

    def __init__(self, num_threads: int | None = None, has_digits: bool | None = None) -> None:
        from . import digits, tiles

        self._num_threads = num_threads or torch.get_num_threads()
        attend = compiled(tiles.attend, tiles.SIGNATURE, is_reordered=False)
        self._loop = _Loop(attend, tiles.LANES, tiles.MOST_TILES, 0)
        self._of_dims: dict[int, _Loop] = {}
        if digits.can_multiply() if has_digits is None else has_digits:
            from . import digit_tiles

            attend = compiled(digit_tiles.attend, tiles.SIGNATURE, is_reordered=False)
            sizes = digit_tiles.LANES, digit_tiles.MOST_TILES, digit_tiles.LEAST
            self._of_dims = dict.fromkeys(digit_tiles.DIMS, _Loop(attend, *sizes))

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
        arrays = q.numpy(), kv[0].numpy(), kv[1].view(-1).numpy(), *into.arrays()
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
        longer = self._of_dims.get(shape[2])
        if longer is None or part.is_rest:
            return [(longer or self._loop, 0, _ENDLESS)]
        group, lens = shape[1] // num_kv_heads, np.diff(part.bounds)
        border = -(-longer.least // group)
        shorter = [(self._loop, 0, border)] if lens.min() < border else []
        return shorter + ([(longer, border, _ENDLESS)] if lens.max() >= border else [])


def _tiles_at_once(part: ChunkPart, num_heads: int, loop: _Loop, num_threads: int) -> int:
    """Few enough that every thread gets several turns."""
    if num_threads == 1:
        return loop.most_tiles
    num_tiles = int(part.bounds[-1]) * num_heads // loop.lanes
    return min(max(num_tiles // (num_threads * _TURNS), 1), loop.most_tiles)
