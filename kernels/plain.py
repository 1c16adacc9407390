"""Attention on any device in plain torch, one sequence after another: for devices that have no
kernel of their own here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .interface import Past


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence: its tokens first:end of the batch, the slots [n] it reads, and which of these
    each token sees, [end - first, n]; None: all."""

    first: int
    end: int
    slots: Tensor
    seen: Tensor | None


class PlainAttention:
    """The `Attention` of any device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def plan(self, past: Past, window: int | None = None) -> list[Span]:
        """As `Attention.plan`."""
        ends = np.cumsum(past.lens).tolist()
        return [self._span(past, s, end, window) for s, end in enumerate(ends)]

    def attend(
        self, q: Tensor, kv: Tensor, plan: list[Span], scale: float, softcap: float | None = None
    ) -> Tensor:
        """As `Attention.attend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for span in plan:
            keys, values = kv.index_select(2, span.slots).to(q.dtype)
            queries = q[span.first : span.end].transpose(0, 1)  # [heads, length, dim]
            if softcap is not None:
                result = _capped(queries, keys, values, span.seen, scale, softcap)
            else:
                result = F.scaled_dot_product_attention(
                    queries[None],
                    keys[None],
                    values[None],
                    attn_mask=span.seen,
                    scale=scale,
                    enable_gqa=True,
                )[0]
            out[span.first : span.end] = result.transpose(0, 1)
        return out

    def _span(self, past: Past, s: int, end: int, window: int | None) -> Span:
        start, length = int(past.starts[s]), int(past.lens[s])
        low = 0 if window is None else max(start - window + 1, 0)  # first key that any token sees
        slots = past.table[past.rows[s], low : start + length].astype(np.int64)
        seen = None
        if length > 1:
            ones = torch.ones(length, len(slots), dtype=torch.bool, device=self._device)
            seen = ones.tril_(start - low)
            if window is not None:
                seen.triu_(start - low - window + 1)
        return Span(end - length, end, torch.from_numpy(slots).to(self._device), seen)


def _capped(
    q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None, scale: float, softcap: float
) -> Tensor:
    """Attention with a softcap: q [heads, length, dim] over keys and values [kv_heads, n, dim]."""
    groups = len(q) // len(keys)
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    scores = (q @ keys.mT).float().mul_(scale / softcap).tanh_().mul_(softcap)
    if seen is not None:
        scores.masked_fill_(~seen, -torch.inf)
    return scores.softmax(-1).to(q.dtype) @ values
