"""Tries compiled attention on a few random numbers."""

from __future__ import annotations

import numpy as np
import torch

from ...interface import Attention, Past
from ...plain import PlainAttention
from ..trial import is_right

NUM_SLOTS = 512
_PREFIX = 96  # tokens that the first two sequences share
# Past and new tokens of sequences: decode tokens alone, and all kinds of work in one step.
DECODE = (_PREFIX, 1), (_PREFIX + 40, 1), (0, 1), (6, 1)
MIXED = (*DECODE, (0, 5), (33, 3), (70, 40))
# The largest error, beside the largest number.
TOLERANCES = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 4e-2}


def is_attention_right(
    attention: Attention, dtype: torch.dtype, num_kv_heads: int, dim: int, group: int
) -> bool:
    """Whether attention gives what torch's operators give for keys and values of a dtype, with
    heads of so many dimensions. group: heads of queries for each head of keys."""
    random = torch.Generator().manual_seed(0)
    kv = torch.randn(2, num_kv_heads, NUM_SLOTS, dim, generator=random).to(dtype)
    plain, what = PlainAttention(torch.device("cpu")), f"attention ({dtype}, heads of {dim})"
    for kinds in (DECODE, MIXED):
        past = past_of(kinds)
        q = torch.randn(int(past.lens.sum()), num_kv_heads * group, dim, generator=random)
        expected = plain.attend(q, kv, plain.plan(past), dim**-0.5)

        def found(q: torch.Tensor = q, past: Past = past) -> torch.Tensor:
            return attention.attend(q, kv, attention.plan(past), dim**-0.5)

        if not is_right(what, found, expected, TOLERANCES[dtype]):
            return False
    return True


def past_of(kinds: tuple[tuple[int, int], ...]) -> Past:
    """A step of such sequences in random slots. Those with a long past share its beginning."""
    slots = np.random.default_rng(0).permutation(NUM_SLOTS).astype(np.int32)
    starts, lens = (np.array(column, np.int32) for column in zip(*kinds, strict=True))
    table = np.zeros((len(kinds), int((starts + lens).max())), np.int32)
    used = _PREFIX
    for row, start, length in zip(table, starts.tolist(), lens.tolist(), strict=True):
        shared = _PREFIX if start >= _PREFIX else 0
        own = start + length - shared
        row[:shared], row[shared : shared + own] = slots[:shared], slots[used : used + own]
        used += own
    return Past(table, np.arange(len(kinds), dtype=np.int32), starts, lens)
