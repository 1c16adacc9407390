"""Attention on a CPU in plain torch.

A step is cut into parts that are merged by their log-sum-exp. Runs that several sequences share,
or that lie in adjacent slots, are read in place by torch's fused kernel, as are long chunks of new
tokens; what is left of many short sequences is gathered and computed together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import Past
from .cuts import Keys, LongPart, Plan, ShortPart, Tokens, cut, first_rows

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True, slots=True)
class _Result:
    """out: [tokens, heads, dim]; total: gives [tokens, heads] log-sum-exp of the scores behind
    it, wanted only where parts are merged."""

    out: Tensor
    total: Callable[[], Tensor]


class CpuAttention:
    """The `Attention` of a CPU, for pools of `num_slots` slots; scores are scaled by `scale`."""

    def __init__(self, num_slots: int, num_kv_heads: int, scale: float) -> None:
        self._heads = first_rows(num_kv_heads, num_slots)
        self._num_kv_heads = num_kv_heads
        self._scale = scale
        self._scratch: dict[torch.dtype, Tensor] = {}

    def plan(self, past: Past) -> Plan:
        """As `Attention.plan`."""
        return cut(past, self._heads)

    def attend(self, q: Tensor, kv: Tensor, plan: Plan) -> Tensor:
        """As `Attention.attend`."""
        if plan.own[0].tokens is None and not plan.runs:
            return self._part(q, kv, plan.own[0]).out
        out, total = torch.empty(q.shape, dtype=q.dtype), torch.empty(q.shape[:2])
        for own in plan.own:
            part = self._part(q, kv, own)
            _put(out, own.tokens, part.out)
            if plan.runs:
                _put(total, own.tokens, part.total())
        for run in plan.runs:
            _merge(out, total, run.tokens, self._long(q, kv, run))
        return out

    def _part(self, q: Tensor, kv: Tensor, part: ShortPart | LongPart) -> _Result:
        return self._short(q, kv, part) if isinstance(part, ShortPart) else self._long(q, kv, part)

    def _long(self, q: Tensor, kv: Tensor, part: LongPart) -> _Result:
        """Queries over keys that they have in common."""
        queries = _pick(q, part.tokens)
        num_tokens, num_heads, dim = queries.shape
        keys, values = self._read(kv, part.keys).unsqueeze(1)  # [1, kv_heads, n, dim] each
        if num_tokens == 1:  # the heads of a group are the rows of one product
            queries = queries.reshape(1, self._num_kv_heads, -1, dim)
        else:
            queries = queries.transpose(0, 1)[None]
        out, total = _flash(queries, keys, values, 0.0, part.is_causal, scale=self._scale)
        if num_tokens == 1:
            return _Result(out.reshape(1, num_heads, dim), lambda: total.reshape(1, num_heads))
        return _Result(out[0].transpose(0, 1), lambda: total[0].T)

    def _short(self, q: Tensor, kv: Tensor, part: ShortPart) -> _Result:
        """Sequences of few new tokens, each over keys of its own."""
        queries = _pick(q, part.tokens) * self._scale  # [S * L, heads, dim]
        num_heads, dim = queries.shape[1:]
        shape = part.num_sequences, -1, self._num_kv_heads, num_heads // self._num_kv_heads
        keys, values = self._gather(kv, part.index).view(2, shape[0] * shape[2], -1, dim)
        queries = queries.view(*shape, dim).transpose(1, 2)  # [S, kv_heads, L, group, dim]
        scores = torch.bmm(queries.reshape(len(keys), -1, dim), keys.mT).float()
        if part.mask is not None:
            scores.view(*queries.shape[:-1], -1).add_(part.mask)
        probs = scores.softmax(-1)
        out = torch.bmm(probs.to(q.dtype), values).view(queries.shape).transpose(1, 2)
        out = out.reshape(-1, num_heads, dim)

        def total() -> Tensor:
            best = scores.amax(-1) - probs.amax(-1).log()  # probability = exp(score - total)
            return best.view(queries.shape[:-1]).transpose(1, 2).reshape(-1, num_heads)

        return _Result(out, total)

    def _read(self, kv: Tensor, keys: Keys) -> Tensor:
        """Keys and values [2, kv_heads, n, dim], in place if their slots are adjacent."""
        if keys.index is None:
            return kv[:, :, keys.start : keys.start + keys.length]
        return self._gather(kv, keys.index).view(2, self._num_kv_heads, keys.length, -1)

    def _gather(self, kv: Tensor, index: Tensor) -> Tensor:
        """Rows of the pool [len(index), dim], valid until the next gather: fresh memory for these
        would cost more, in page faults, than the copy itself."""
        dim = kv.shape[-1]
        scratch = self._scratch.get(kv.dtype)
        if scratch is None or scratch.numel() < len(index) * dim:
            scratch = self._scratch[kv.dtype] = torch.empty(len(index) * dim * 2, dtype=kv.dtype)
        rows = scratch[: len(index) * dim].view(-1, dim)
        return torch.index_select(kv.view(-1, dim), 0, index, out=rows)


def _pick(x: Tensor, tokens: Tokens) -> Tensor:
    if tokens is None:
        return x
    return x[tokens] if isinstance(tokens, slice) else x.index_select(0, tokens)


def _put(x: Tensor, tokens: Tokens, values: Tensor) -> None:
    if isinstance(tokens, Tensor):
        x.index_copy_(0, tokens, values)
    else:
        x[tokens or slice(None)] = values


def _merge(out: Tensor, total: Tensor, tokens: Tokens, part: _Result) -> None:
    """Join a part with what these tokens have so far, each weighted by exp of its total."""
    so_far, part_total = _pick(total, tokens), part.total()
    share = torch.sigmoid(part_total - so_far).unsqueeze(-1).to(out.dtype)
    _put(out, tokens, torch.lerp(_pick(out, tokens), part.out, share))
    _put(total, tokens, torch.logaddexp(so_far, part_total))
