"""Plain attention, one sequence after another: the oracle of every faster kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from . import Past


def attend(q: Tensor, kv: Tensor, past: Past, scale: float) -> Tensor:
    """Causal attention of q [tokens, heads, dim] over kv [2, kv_heads, slots, dim]; a new
    [tokens, heads, dim]. Computed in float64."""
    groups = q.shape[1] // kv.shape[1]
    outputs, first = [], 0
    for row, start, length in zip(past.rows, past.starts, past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, : start + length].copy())
        keys, values = kv.index_select(2, slots).double().repeat_interleave(groups, dim=1)
        queries = q[first : first + length].double().transpose(0, 1)  # [heads, length, dim]
        future = torch.ones(length, start + length).triu(int(start) + 1).bool()
        scores = (queries @ keys.mT * scale).masked_fill(future, -torch.inf)
        outputs.append((scores.softmax(-1) @ values).transpose(0, 1).to(q.dtype))
        first += int(length)
    return torch.cat(outputs)
