"""Plain attention, one sequence after another: the oracle of every faster kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from .interface import Past


def attend(
    q: Tensor,
    kv: Tensor,
    past: Past,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Causal attention of q [tokens, heads, dim] over kv [2, kv_heads, slots, dim]; a new
    [tokens, heads, dim]. Window and softcap as in `Attention`. Computed in float64."""
    groups = q.shape[1] // kv.shape[1]
    outputs, first = [], 0
    for row, start, length in zip(past.rows, past.starts, past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, : start + length].copy())
        keys, values = kv.index_select(2, slots).double().repeat_interleave(groups, dim=1)
        queries = q[first : first + length].double().transpose(0, 1)  # [heads, length, dim]
        scores = queries @ keys.mT * scale
        if softcap is not None:
            scores = (scores / softcap).tanh() * softcap
        ones = torch.ones(length, start + length, dtype=torch.bool)
        is_hidden = ones.triu(int(start) + 1)
        if window is not None:
            is_hidden |= ones.tril(int(start) - window)
        probs = scores.masked_fill(is_hidden, -torch.inf).softmax(-1)
        values = values.nan_to_num() if window is not None else values  # hidden ones may be poison
        outputs.append((probs @ values).transpose(0, 1).to(q.dtype))
        first += int(length)
    return torch.cat(outputs)
