"""Several new tokens of each sequence over keys in any slots, read where they lie.

What has no copy, no mask and no scores in memory: shares the work of `tiles` out among threads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .paged import compiled, helpers
from .parts import Bend, ChunkPart, Into

_SPREAD = 1 << 13  # scores of a head from which a second thread is worth its wake-up
_TURNS = 4  # for a thread, so that none waits long for the last
_NO_WINDOW = 1 << 30


class ChunkReader:
    """Attention of chunks. num_threads: as torch has, if None."""

    def __init__(self, num_threads: int | None = None) -> None:
        from . import tiles

        self._num_threads = num_threads or torch.get_num_threads()
        self._attend = compiled(tiles.attend, tiles.SIGNATURE, is_reordered=False)
        self._lanes, self._most_tiles = tiles.LANES, tiles.MOST_TILES

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
        num_threads = 1 if part.num_scores < _SPREAD else self._num_threads
        num_tiles = self._tiles_at_once(part, q.shape[1], kv.shape[1], num_threads)
        settings = *arrays, *of_part, window, *bend.in_powers(), num_tiles, part.tokens, is_merged
        others = [
            helpers(self._num_threads).submit(self._attend, *settings, thread, num_threads)
            for thread in range(1, num_threads)
        ]
        self._attend(*settings, 0, num_threads)
        for other in others:
            other.result()

    def _tiles_at_once(
        self, part: ChunkPart, num_heads: int, num_kv_heads: int, num_threads: int
    ) -> int:
        """Few enough that every thread gets several turns."""
        if num_threads == 1:
            return self._most_tiles
        num_tiles = int(part.bounds[-1]) * num_heads // self._lanes
        return min(max(num_tiles // (num_threads * _TURNS), 1), self._most_tiles)
