"""Single tokens over keys in any slots, read where they lie.

Torch has no operator for this: it copies every key first. Shares the work of `singles` out among
threads. Only for queries in float32 on a CPU.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..jit.jit import compiled
from ..parts import Bend, Into, TokenPart

SLOT_DTYPES = (torch.float32, torch.bfloat16)  # of pools that compiled loops read and write
_SPREAD = 1 << 19  # numbers to read from which a second thread is worth its wake-up


def as_array(x: Tensor) -> npt.NDArray[Any]:
    """The same memory as the loops take it: float32 numbers, or the bits of bfloat16 ones."""
    return x.numpy() if x.dtype is torch.float32 else x.view(torch.uint16).numpy()


def name_of(dtype: torch.dtype) -> str:
    """As "bfloat16"."""
    return str(dtype).removeprefix("torch.")


class PagedReader:
    """Attention of single tokens. num_threads: as torch has, if None. dtype: of keys and values."""

    def __init__(self, num_threads: int | None = None, dtype: torch.dtype = torch.float32) -> None:
        from ..loops import singles

        self._num_threads = num_threads or torch.get_num_threads()
        signature = singles.SIGNATURES[name_of(dtype)]
        self._attend = compiled(singles.attend, signature, is_reordered=False)

    def attend(self, q: Tensor, kv: Tensor, part: TokenPart, bend: Bend, into: Into) -> None:
        """Put what the tokens of a part attend to into their places, for q [tokens, heads, dim]."""
        arrays = q.numpy(), as_array(kv[0]), as_array(kv[1].view(-1)), *into.arrays()
        of_part = part.tokens, part.table, part.rows, part.firsts, part.ends
        settings = *arrays, *of_part, *bend.in_powers()
        borders = self._borders(part, kv.shape[1] * kv.shape[3])
        others = [
            helpers(self._num_threads).submit(self._attend, *settings, start, stop)
            for start, stop in itertools.pairwise(borders[1:])
        ]
        self._attend(*settings, 0, borders[1])
        for other in others:
            other.result()

    def _borders(self, part: TokenPart, width: int) -> list[int]:
        """Where tokens are parted among threads; all for one, unless there is much to read."""
        num_tokens, reads = len(part.rows), part.reads
        num_threads = min(self._num_threads, num_tokens)
        if not is_spread(part, width, num_threads):
            return [0, num_tokens]
        goals = reads[-1] * np.arange(1, num_threads) / num_threads
        return [0, *(np.searchsorted(reads, goals) + 1).tolist(), num_tokens]


def is_spread(part: TokenPart, width: int, num_threads: int) -> bool:
    """Whether several threads read the keys of a part, each of so many numbers."""
    return min(num_threads, len(part.rows)) > 1 and bool(part.reads[-1] * width >= _SPREAD)


@functools.cache
def helpers(num_threads: int) -> ThreadPoolExecutor:
    """Threads beside the caller's; the loops need no interpreter."""
    return ThreadPoolExecutor(num_threads - 1, "forkroot-attention")


if hasattr(os, "register_at_fork"):  # a forked child has none of the threads
    os.register_at_fork(after_in_child=helpers.cache_clear)


def slot_writer(dtype: torch.dtype) -> Callable[[Tensor, Tensor, Tensor], None]:
    """A function that puts kv [tokens, heads, dim], float32 or such numbers, into slots [tokens] of
    a pool [heads, slots, dim] of such numbers."""
    from ..loops import slots as places

    loop = compiled(places.write, places.SIGNATURES[name_of(dtype)], is_reordered=False)

    def write(pool: Tensor, slots: Tensor, kv: Tensor) -> None:
        loop(as_array(pool), slots.numpy(), kv.float().numpy())

    return write
