"""Attention on a CPU in plain torch: one-token sequences together, longer ones one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import Past


@dataclass(frozen=True, slots=True)
class DecodePart:
    """One-token sequences. tokens: [S] their tokens in the batch, None if these are all of it.
    index: rows of the pool seen as a matrix [2 * kv_heads * slots, dim], ordered
    [2, S, kv_heads, n]. mask: [S * kv_heads, 1, n], 0 or -inf; None if all are n long."""

    tokens: Tensor | None
    index: Tensor
    mask: Tensor | None
    longest: int


@dataclass(frozen=True, slots=True)
class ExtendPart:
    """One sequence of several new tokens, first:end in the batch. slots: [start + end - first]."""

    first: int
    end: int
    slots: Tensor


@dataclass(frozen=True, slots=True)
class Plan:
    decode: DecodePart | None
    extends: tuple[ExtendPart, ...]


class CpuAttention:
    """The `Attention` of a CPU, for a pool of `num_slots`."""

    def __init__(self, num_slots: int, num_kv_heads: int, scale: float) -> None:
        self._num_slots = num_slots
        self._num_kv_heads = num_kv_heads
        self._scale = scale

    def plan(self, past: Past) -> Plan:
        """As `Attention.plan`."""
        ends = np.cumsum(past.lens)
        is_decode = past.lens == 1
        extends = tuple(
            ExtendPart(int(ends[s] - past.lens[s]), int(ends[s]), _slots(past, int(s)))
            for s in np.flatnonzero(~is_decode)
        )
        decode = self._plan_decode(past, is_decode, ends) if is_decode.any() else None
        return Plan(decode, extends)

    def attend(self, q: Tensor, kv: Tensor, plan: Plan) -> Tensor:
        """As `Attention.attend`."""
        if plan.decode is not None and plan.decode.tokens is None:
            return self._decode(q, kv, plan.decode)
        out = torch.empty_like(q)
        if plan.decode is not None and plan.decode.tokens is not None:
            tokens = plan.decode.tokens
            out.index_copy_(0, tokens, self._decode(q.index_select(0, tokens), kv, plan.decode))
        for part in plan.extends:
            out[part.first : part.end] = self._extend(q[part.first : part.end], kv, part.slots)
        return out

    def _plan_decode(self, past: Past, is_decode: np.ndarray, ends: np.ndarray) -> DecodePart:
        tokens = None if is_decode.all() else torch.from_numpy(ends[is_decode] - 1)
        lens = past.starts[is_decode] + 1
        longest = int(lens.max())
        slots = past.table[past.rows[is_decode], :longest].astype(np.int64)  # [S, n]
        is_past = np.arange(longest) < lens[:, None]
        slots = np.where(is_past, slots, slots[:, :1])
        heads = np.arange(2 * self._num_kv_heads).reshape(2, 1, -1, 1) * self._num_slots
        index = torch.from_numpy((heads + slots[:, None, :]).ravel())
        if is_past.all():
            return DecodePart(tokens, index, None, longest)
        mask = np.where(is_past, np.float32(0), np.float32(-np.inf))[:, None, :]
        mask = np.repeat(mask, self._num_kv_heads, axis=0)
        return DecodePart(tokens, index, torch.from_numpy(mask), longest)

    def _decode(self, q: Tensor, kv: Tensor, part: DecodePart) -> Tensor:
        dim = q.shape[-1]
        pairs = q.shape[0] * self._num_kv_heads  # (sequence, kv head)
        keys, values = kv.view(-1, dim).index_select(0, part.index).view(2, pairs, -1, dim)
        queries = q.view(pairs, -1, dim)  # [pairs, group, dim]
        scores = torch.bmm(queries, keys.mT).float().mul_(self._scale)
        if part.mask is not None:
            scores += part.mask
        return torch.bmm(scores.softmax(-1).to(q.dtype), values).view_as(q)

    def _extend(self, q: Tensor, kv: Tensor, slots: Tensor) -> Tensor:
        length, _, dim = q.shape
        total = slots.shape[0]
        heads = self._num_kv_heads
        keys, values = kv.index_select(2, slots)  # [kv_heads, total, dim]
        queries = q.view(length, heads, -1, dim).permute(1, 2, 0, 3).reshape(heads, -1, dim)
        scores = torch.bmm(queries, keys.mT).float().mul_(self._scale)
        future = torch.ones(length, total, dtype=torch.bool).triu_(total - length + 1)
        scores.view(heads, -1, length, total).masked_fill_(future, -torch.inf)
        out = torch.bmm(scores.softmax(-1).to(q.dtype), values)  # [kv_heads, group * length, dim]
        return out.view(heads, -1, length, dim).permute(2, 0, 1, 3).reshape(length, -1, dim)


def _slots(past: Past, sequence: int) -> Tensor:
    end = past.starts[sequence] + past.lens[sequence]
    return torch.from_numpy(past.table[past.rows[sequence], :end].astype(np.int64))
