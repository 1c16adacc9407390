"""Attention on any device in plain torch, one sequence after another: for devices that have no
kernel of their own here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from . import Past


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence: its tokens first:end of the batch, the slots [n] it reads, and which of these
    each token sees, [end - first, n]; None: all."""

    first: int
    end: int
    slots: Tensor
    seen: Tensor | None


class PlainAttention:
    """The `Attention` of any device; scores are scaled by `scale`."""

    def __init__(self, device: torch.device, scale: float) -> None:
        self._device = device
        self._scale = scale

    def plan(self, past: Past) -> list[Span]:
        """As `Attention.plan`."""
        ends = np.cumsum(past.lens).tolist()
        return [self._span(past, s, end) for s, end in enumerate(ends)]

    def attend(self, q: Tensor, kv: Tensor, plan: list[Span]) -> Tensor:
        """As `Attention.attend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for span in plan:
            keys, values = kv.index_select(2, span.slots)
            queries = q[span.first : span.end].transpose(0, 1)  # [heads, length, dim]
            result = F.scaled_dot_product_attention(
                queries[None],
                keys[None],
                values[None],
                attn_mask=span.seen,
                scale=self._scale,
                enable_gqa=True,
            )
            out[span.first : span.end] = result[0].transpose(0, 1)
        return out

    def _span(self, past: Past, s: int, end: int) -> Span:
        start, length = int(past.starts[s]), int(past.lens[s])
        slots = past.table[past.rows[s], : start + length].astype(np.int64)
        seen = None
        if length > 1:
            ones = torch.ones(length, start + length, dtype=torch.bool, device=self._device)
            seen = ones.tril_(start)
        return Span(end - length, end, torch.from_numpy(slots).to(self._device), seen)
