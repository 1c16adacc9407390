"""Attention on a CPU.

A step is cut into parts that are merged by their log-sum-exp: runs that several sequences share,
and what is left of each. Loops compiled for float32 or bfloat16 keys read all of them in place.
Where there are none, runs that are shared or lie in adjacent slots are read in place by torch's
fused kernel, as are long chunks of new tokens; what is left is gathered and computed together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...interface import Past
from ..jit.jit import can_compile
from ..parts import (
    Bend,
    CopiedPart,
    CopiedPlan,
    Indices,
    InPlacePlan,
    Into,
    Keys,
    LongPart,
    ShortPart,
    TokenPart,
    Tokens,
    narrowed,
)
from .cuts import cut, first_rows
from .inplace import cut_in_place, stranger_loop
from .paged import SLOT_DTYPES, PagedReader
from .prefill import ChunkReader
from .windows import mask

_FOLDED = 16  # new tokens up to which heads are folded into rows
_SCORES = 1 << 22  # scores that exist at a time where the fused kernel cannot be used
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True, slots=True)
class _Result:
    """out: [tokens, heads, dim]; total: gives [tokens, heads] log-sum-exp of the scores behind
    it, wanted only where parts are merged."""

    out: Tensor
    total: Callable[[], Tensor]


class CpuAttention:
    """The `Attention` of a CPU, for pools of `num_slots` slots.

    is_compiled: by compiled loops, which know float32 and bfloat16 keys, and compute in float32;
    None: where numba is there.
    """

    def __init__(
        self, num_slots: int, num_kv_heads: int, dtype: torch.dtype, is_compiled: bool | None = None
    ) -> None:
        is_wanted = can_compile() if is_compiled is None else is_compiled
        self._readers: tuple[PagedReader, ChunkReader] | None = None
        if is_wanted and dtype in SLOT_DTYPES:
            from ..jit.amx import can_multiply

            self._readers = PagedReader(dtype=dtype), ChunkReader(dtype=dtype)
            # a sum in another order may be rounded to another bfloat16 number before a product
            self._has_runs = dtype is torch.float32 or not can_multiply()
            stranger_loop()  # now, not in a call's time
        self._heads = first_rows(num_kv_heads, num_slots)
        self._num_kv_heads = num_kv_heads
        self._scratch: dict[torch.dtype, Tensor] = {}

    def plan(self, past: Past, window: int | None = None) -> CopiedPlan | InPlacePlan:
        """As `Attention.plan`."""
        if self._readers is not None:
            return cut_in_place(past, window, self._has_runs)
        return cut(past, self._heads, window)

    @staticmethod
    def narrowed(plan: CopiedPlan | InPlacePlan, wanted: Indices) -> CopiedPlan | InPlacePlan:
        """As `Narrowing.narrowed`."""
        return narrowed(plan, wanted) if isinstance(plan, InPlacePlan) else plan

    def attend(
        self,
        q: Tensor,
        kv: Tensor,
        plan: CopiedPlan | InPlacePlan,
        scale: float,
        softcap: float | None = None,
    ) -> Tensor:
        """As `Attention.attend`."""
        bend = Bend(scale, softcap)
        if isinstance(plan, InPlacePlan):
            return self._in_place(q, kv, plan, bend)
        if plan.own[0].tokens is None and not plan.runs:
            return self._part(q, kv, plan.own[0], bend).out
        out, total = torch.empty(q.shape, dtype=q.dtype), torch.empty(q.shape[:2])
        for own in plan.own:
            part = self._part(q, kv, own, bend)
            _put(out, own.tokens, part.out)
            if plan.runs:
                _put(total, own.tokens, part.total())
        for run in plan.runs:
            _merge(out, total, run.tokens, self._part(q, kv, run, bend))
        return out

    def _in_place(self, q: Tensor, kv: Tensor, plan: InPlacePlan, bend: Bend) -> Tensor:
        """By the compiled loops."""
        assert self._readers is not None
        dtype, q = q.dtype, q.float()
        (tokens, chunks), into = self._readers, Into.like(q)
        for own in plan.own:
            if isinstance(own, TokenPart):
                tokens.attend(q, kv, own, bend, into)
            else:
                chunks.attend(q, kv, own, bend, into)
        for run in plan.runs:
            chunks.attend(q, kv, run, bend, into, is_merged=True)
        return into.out.to(dtype)

    def _part(self, q: Tensor, kv: Tensor, part: CopiedPart, bend: Bend) -> _Result:
        if isinstance(part, ShortPart):
            return self._short(q, kv, part, bend)
        return self._long(q, kv, part, bend)

    def _long(self, q: Tensor, kv: Tensor, part: LongPart, bend: Bend) -> _Result:
        """Queries over keys that they have in common."""
        queries = _pick(q, part.tokens)
        num_tokens, num_heads, dim = queries.shape
        keys, values = self._read(kv, part.keys).unsqueeze(1)  # [1, kv_heads, n, dim] each
        if bend.softcap is not None:
            return _bent(queries, keys[0], values[0], part, bend)
        is_folded = num_tokens <= _FOLDED and not part.is_causal and part.mask is None
        if is_folded:  # the heads of a group are rows of one product
            queries = queries.reshape(num_tokens, self._num_kv_heads, -1, dim)
            queries = queries.transpose(0, 1).flatten(1, 2)[None]
        else:
            queries = queries.transpose(0, 1)[None]
        out, total = _flash(
            queries, keys, values, 0.0, part.is_causal, attn_mask=part.mask, scale=bend.scale
        )
        if is_folded:
            out = out.view(self._num_kv_heads, num_tokens, -1, dim).transpose(0, 1)
            return _Result(
                out.reshape(num_tokens, num_heads, dim), lambda: _unfolded(total[0], num_tokens)
            )
        return _Result(out[0].transpose(0, 1), lambda: total[0].T)

    def _short(self, q: Tensor, kv: Tensor, part: ShortPart, bend: Bend) -> _Result:
        """Sequences of few new tokens, each over keys of its own."""
        queries = _pick(q, part.tokens) * bend.scale  # [S * L, heads, dim]
        num_heads, dim = queries.shape[1:]
        shape = part.num_sequences, -1, self._num_kv_heads, num_heads // self._num_kv_heads
        keys, values = self._gather(kv, part.index).view(2, shape[0] * shape[2], -1, dim)
        queries = queries.view(*shape, dim).transpose(1, 2)  # [S, kv_heads, L, group, dim]
        scores = torch.bmm(queries.reshape(len(keys), -1, dim), keys.mT).float()
        if bend.softcap is not None:
            scores.div_(bend.softcap).tanh_().mul_(bend.softcap)
        if part.mask is not None:
            scores.view(*queries.shape[:-1], -1).add_(part.mask)
        probs = scores.softmax(-1)
        out = torch.bmm(probs.to(q.dtype), values).view(queries.shape).transpose(1, 2)
        out = out.reshape(-1, num_heads, dim)

        def total() -> Tensor:
            return (
                _total(scores, probs)
                .view(queries.shape[:-1])
                .transpose(1, 2)
                .reshape(-1, num_heads)
            )

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


def _unfolded(total: Tensor, num_tokens: int) -> Tensor:
    """[tokens, heads] of [kv_heads, tokens * heads of a group]."""
    return total.view(len(total), num_tokens, -1).transpose(0, 1).flatten(1)


def _total(scores: Tensor, probs: Tensor) -> Tensor:
    """The log-sum-exp of scores whose softmax is known: probability = exp(score - total)."""
    return scores.amax(-1) - probs.amax(-1).log()


def _bent(q: Tensor, keys: Tensor, values: Tensor, part: LongPart, bend: Bend) -> _Result:
    """As `CpuAttention._long` with a softcap, which the fused kernel does not know: q [T, heads,
    dim] over keys and values [kv_heads, n, dim], few scores at a time."""
    assert bend.softcap is not None
    (num_tokens, num_heads, dim), (num_kv_heads, num_keys, _) = q.shape, keys.shape
    hidden = mask(num_tokens, num_keys, num_keys) if part.is_causal else part.mask
    step = max(_SCORES // (num_heads * num_keys), 1)
    outs, totals = [], []
    for start in range(0, num_tokens, step):
        queries = q[start : start + step].reshape(-1, num_kv_heads, num_heads // num_kv_heads, dim)
        queries = queries.transpose(0, 1)  # [kv_heads, T, group, dim]
        scores = (queries.flatten(1, 2) @ keys.mT).float().view(*queries.shape[:3], -1)
        scores.mul_(bend.scale / bend.softcap).tanh_().mul_(bend.softcap)
        if hidden is not None:
            scores += hidden[start : start + step, None]
        out = scores.softmax(-1).to(q.dtype).flatten(1, 2) @ values
        outs.append(out.view(queries.shape).transpose(0, 1).flatten(1, 2))
        totals.append(scores.logsumexp(-1).transpose(0, 1).flatten(1))
    return _Result(torch.cat(outs), lambda: torch.cat(totals))


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
