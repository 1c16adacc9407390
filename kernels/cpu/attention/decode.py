"""Decode attention: one new token of each sequence over keys in any slots, read in place.

Torch has no operator for this: it would copy every key first. Distributes the work of
`decode_attention` over threads. Only for queries in float32 on a CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..jit.features import has
from ..jit.jit import can_compile, compiled
from ..threads import run_all
from ..work_items import AttentionOutput, DecodeItem, ScoreMod

# How loops have the numbers of a pool, see `vectors.widened`.
_STORED = {torch.bfloat16: torch.uint16, torch.float16: torch.int16}
_SPREAD = 1 << 19  # numbers to read from which a second thread is worth its wake-up


def can_read(dtype: torch.dtype) -> bool:
    """Whether compiled loops read and write pools of such numbers here."""
    if dtype is torch.float16 and not (has("f16c") or has("neon")):
        return False
    return dtype in (torch.float32, *_STORED) and can_compile()


def as_array(x: Tensor) -> npt.NDArray[Any]:
    """The same memory as the loops take it: float32 numbers, or the bits of shorter ones."""
    return x.view(_STORED.get(x.dtype, x.dtype)).numpy()


def name_of(dtype: torch.dtype) -> str:
    """The name of a dtype, such as "bfloat16"."""
    return str(dtype).removeprefix("torch.")


class DecodeAttention:
    """Attention of decode tokens. num_threads: torch's, if None. dtype: of keys and values. dim: of
    a head, if it is known: the loop for it is compiled now rather than by the first call."""

    def __init__(
        self,
        num_threads: int | None = None,
        dtype: torch.dtype = torch.float32,
        dim: int | None = None,
    ) -> None:
        self._num_threads = num_threads or torch.get_num_threads()
        self._dtype = dtype
        if dim is not None:
            self._loop(dim)

    def attend(
        self, q: Tensor, kv: Tensor, item: DecodeItem, score_mod: ScoreMod, output: AttentionOutput
    ) -> None:
        """Write the attention of an item's tokens to the output, for q [tokens, heads, dim]."""
        arrays = q.numpy(), as_array(kv[0]), as_array(kv[1].view(-1)), *output.arrays()
        of_item = item.tokens, item.table, item.rows, item.firsts, item.ends
        settings = *arrays, *of_item, *score_mod.in_log2()
        borders, attend = self._borders(item, kv.shape[1] * kv.shape[3]), self._loop(kv.shape[3])
        parts = ((*settings, *part) for part in itertools.pairwise(borders))
        run_all(self._num_threads, attend, parts)

    def _loop(self, dim: int) -> Callable[..., None]:
        """The loop for heads of such a dim, compiled the first time."""
        from ..loops import amx_decode_attention, decode_attention

        signature = decode_attention.SIGNATURES[name_of(self._dtype)]
        if uses_amx(self._dtype, dim):
            return compiled(amx_decode_attention.attend, signature, is_reordered=False)
        return compiled(decode_attention.attend, signature, is_reordered=False)

    def _borders(self, item: DecodeItem, width: int) -> list[int]:
        """Where tokens are split among threads; all for one, unless there is much to read."""
        num_tokens, reads = len(item.rows), item.reads
        num_threads = min(self._num_threads, num_tokens)
        if not is_spread(item, width, num_threads):
            return [0, num_tokens]
        goals = reads[-1] * np.arange(1, num_threads) / num_threads
        return [0, *(np.searchsorted(reads, goals) + 1).tolist(), num_tokens]


def uses_amx(dtype: torch.dtype, dim: int) -> bool:
    """Whether decode tokens read keys of such numbers by AMX."""
    from ..jit import amx
    from ..loops import amx_decode_attention

    is_stored = dtype is torch.bfloat16 and amx_decode_attention.fits(dim)
    return is_stored and amx.can_multiply()


def is_spread(item: DecodeItem, width: int, num_threads: int) -> bool:
    """Whether several threads read the keys of an item, each of so many numbers."""
    return min(num_threads, len(item.rows)) > 1 and bool(item.reads[-1] * width >= _SPREAD)


def slot_writer(dtype: torch.dtype) -> Callable[[Tensor, Tensor, Tensor], None]:
    """A function that writes kv [tokens, heads, dim], float32 or of this dtype, into slots [tokens]
    of a pool [heads, slots, dim] of this dtype."""
    from ..loops import slots as slot_loops

    loop = compiled(slot_loops.write, slot_loops.SIGNATURES[name_of(dtype)], is_reordered=False)

    def write(pool: Tensor, slots: Tensor, kv: Tensor) -> None:
        loop(as_array(pool), slots.numpy(), kv.float().numpy())

    return write
