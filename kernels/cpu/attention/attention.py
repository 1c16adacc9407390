"""Attention on a CPU.

A step is split into work items that are merged by their log-sum-exp: runs of keys that several
sequences share, and each sequence's own keys. Loops compiled for float32 or bfloat16 keys read all
of them in place. Without these, runs that are shared or lie in adjacent slots are read in place by
torch's fused kernel, as are many new tokens of one sequence; other keys are gathered and computed
together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...interface import Past
from ..jit.jit import can_compile
from ..work_items import (
    AttentionOutput,
    DecodeItem,
    GatheredItem,
    GatheredPlan,
    Indices,
    InPlacePlan,
    Keys,
    PaddedItem,
    ScoreMod,
    SharedKeysItem,
    Tokens,
    narrowed,
)
from .decode import SLOT_DTYPES, DecodeAttention
from .extend import ExtendAttention
from .gathered_plan import first_rows, plan_gathered
from .in_place_plan import plan_in_place, unshared_rows_loop
from .windows import mask

_FOLDED = 16  # new tokens up to which heads are folded into rows
_SCORES = 1 << 22  # scores that exist at a time where the fused kernel cannot be used
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True, slots=True)
class _Result:
    """out: [tokens, heads, dim]; lse: gives [tokens, heads], the log-sum-exp of its scores, needed
    only where items are merged."""

    out: Tensor
    lse: Callable[[], Tensor]


class CpuAttention:
    """The `Attention` of a CPU, for pools of `num_slots` slots.

    is_compiled: whether to use compiled loops, which support float32 and bfloat16 keys and compute
    in float32; None: if numba is installed. dim: of a head, if known, for which loops are compiled
    now.
    """

    def __init__(
        self,
        num_slots: int,
        num_kv_heads: int,
        dtype: torch.dtype,
        is_compiled: bool | None = None,
        dim: int | None = None,
    ) -> None:
        is_wanted = can_compile() if is_compiled is None else is_compiled
        self._readers: tuple[DecodeAttention, ExtendAttention] | None = None
        if is_wanted and dtype in SLOT_DTYPES:
            from ..jit.amx import can_multiply

            self._readers = DecodeAttention(dtype=dtype, dim=dim), ExtendAttention(dtype=dtype)
            # a sum in another order may be rounded to another bfloat16 number before a product
            self._has_runs = dtype is torch.float32 or not can_multiply()
            unshared_rows_loop()  # now, not in a call's time
        self._heads = first_rows(num_kv_heads, num_slots)
        self._num_kv_heads = num_kv_heads
        self._scratch: dict[torch.dtype, Tensor] = {}

    def plan(self, past: Past, window: int | None = None) -> GatheredPlan | InPlacePlan:
        """As `Attention.plan`."""
        if self._readers is not None:
            return plan_in_place(past, window, self._has_runs)
        return plan_gathered(past, self._heads, window)

    @staticmethod
    def narrowed(plan: GatheredPlan | InPlacePlan, wanted: Indices) -> GatheredPlan | InPlacePlan:
        """As `Narrowing.narrowed`."""
        return narrowed(plan, wanted) if isinstance(plan, InPlacePlan) else plan

    def decode_item(self, plan: GatheredPlan | InPlacePlan) -> DecodeItem | None:
        """As `InlineAttention.decode_item`."""
        is_overridden = type(self).attend is not CpuAttention.attend
        if is_overridden or not isinstance(plan, InPlacePlan) or plan.runs or len(plan.own) != 1:
            return None
        return plan.own[0] if isinstance(plan.own[0], DecodeItem) else None

    def attend(
        self,
        q: Tensor,
        kv: Tensor,
        plan: GatheredPlan | InPlacePlan,
        scale: float,
        softcap: float | None = None,
    ) -> Tensor:
        """As `Attention.attend`."""
        score_mod = ScoreMod(scale, softcap)
        if isinstance(plan, InPlacePlan):
            return self._in_place(q, kv, plan, score_mod)
        if plan.own[0].tokens is None and not plan.runs:
            return self._item(q, kv, plan.own[0], score_mod).out
        out, lse = torch.empty(q.shape, dtype=q.dtype), torch.empty(q.shape[:2])
        for own in plan.own:
            item = self._item(q, kv, own, score_mod)
            _put(out, own.tokens, item.out)
            if plan.runs:
                _put(lse, own.tokens, item.lse())
        for run in plan.runs:
            _merge(out, lse, run.tokens, self._item(q, kv, run, score_mod))
        return out

    def _in_place(self, q: Tensor, kv: Tensor, plan: InPlacePlan, score_mod: ScoreMod) -> Tensor:
        """By the compiled loops."""
        assert self._readers is not None
        dtype, q = q.dtype, q.float()
        (decode, extend), output = self._readers, AttentionOutput.like(q)
        for own in plan.own:
            if isinstance(own, DecodeItem):
                decode.attend(q, kv, own, score_mod, output)
            else:
                extend.attend(q, kv, own, score_mod, output)
        for run in plan.runs:
            extend.attend(q, kv, run, score_mod, output, is_merged=True)
        return output.out.to(dtype)

    def _item(self, q: Tensor, kv: Tensor, item: GatheredItem, score_mod: ScoreMod) -> _Result:
        if isinstance(item, PaddedItem):
            return self._padded(q, kv, item, score_mod)
        return self._shared_keys(q, kv, item, score_mod)

    def _shared_keys(
        self, q: Tensor, kv: Tensor, item: SharedKeysItem, score_mod: ScoreMod
    ) -> _Result:
        """Queries over keys that they have in common."""
        queries = _pick(q, item.tokens)
        num_tokens, num_heads, dim = queries.shape
        keys, values = self._read(kv, item.keys).unsqueeze(1)  # [1, kv_heads, n, dim] each
        if score_mod.softcap is not None:
            return _softcapped(queries, keys[0], values[0], item, score_mod)
        is_folded = num_tokens <= _FOLDED and not item.is_causal and item.mask is None
        if is_folded:  # the heads of a group are rows of one product
            queries = queries.reshape(num_tokens, self._num_kv_heads, -1, dim)
            queries = queries.transpose(0, 1).flatten(1, 2)[None]
        else:
            queries = queries.transpose(0, 1)[None]
        out, lse = _flash(
            queries, keys, values, 0.0, item.is_causal, attn_mask=item.mask, scale=score_mod.scale
        )
        if is_folded:
            out = out.view(self._num_kv_heads, num_tokens, -1, dim).transpose(0, 1)
            return _Result(
                out.reshape(num_tokens, num_heads, dim), lambda: _unfolded(lse[0], num_tokens)
            )
        return _Result(out[0].transpose(0, 1), lambda: lse[0].T)

    def _padded(self, q: Tensor, kv: Tensor, item: PaddedItem, score_mod: ScoreMod) -> _Result:
        """Sequences of few new tokens, each over keys of its own."""
        queries = _pick(q, item.tokens) * score_mod.scale  # [S * L, heads, dim]
        num_heads, dim = queries.shape[1:]
        shape = item.num_sequences, -1, self._num_kv_heads, num_heads // self._num_kv_heads
        keys, values = self._gather(kv, item.index).view(2, shape[0] * shape[2], -1, dim)
        queries = queries.view(*shape, dim).transpose(1, 2)  # [S, kv_heads, L, group, dim]
        scores = torch.bmm(queries.reshape(len(keys), -1, dim), keys.mT).float()
        if score_mod.softcap is not None:
            scores.div_(score_mod.softcap).tanh_().mul_(score_mod.softcap)
        if item.mask is not None:
            scores.view(*queries.shape[:-1], -1).add_(item.mask)
        probs = scores.softmax(-1)
        out = torch.bmm(probs.to(q.dtype), values).view(queries.shape).transpose(1, 2)
        out = out.reshape(-1, num_heads, dim)

        def lse() -> Tensor:
            return (
                _lse(scores, probs).view(queries.shape[:-1]).transpose(1, 2).reshape(-1, num_heads)
            )

        return _Result(out, lse)

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


def _unfolded(lse: Tensor, num_tokens: int) -> Tensor:
    """[tokens, heads] of [kv_heads, tokens * heads of a group]."""
    return lse.view(len(lse), num_tokens, -1).transpose(0, 1).flatten(1)


def _lse(scores: Tensor, probs: Tensor) -> Tensor:
    """The log-sum-exp of scores whose softmax is known: probability = exp(score - lse)."""
    return scores.amax(-1) - probs.amax(-1).log()


def _softcapped(
    q: Tensor, keys: Tensor, values: Tensor, item: SharedKeysItem, score_mod: ScoreMod
) -> _Result:
    """As `CpuAttention._shared_keys` with a softcap, which the fused kernel does not support: q [T,
    heads, dim] over keys and values [kv_heads, n, dim], few scores at a time."""
    assert score_mod.softcap is not None
    (num_tokens, num_heads, dim), (num_kv_heads, num_keys, _) = q.shape, keys.shape
    hidden = mask(num_tokens, num_keys, num_keys) if item.is_causal else item.mask
    step = max(_SCORES // (num_heads * num_keys), 1)
    outs, lses = [], []
    for start in range(0, num_tokens, step):
        queries = q[start : start + step].reshape(-1, num_kv_heads, num_heads // num_kv_heads, dim)
        queries = queries.transpose(0, 1)  # [kv_heads, T, group, dim]
        scores = (queries.flatten(1, 2) @ keys.mT).float().view(*queries.shape[:3], -1)
        scores.mul_(score_mod.scale / score_mod.softcap).tanh_().mul_(score_mod.softcap)
        if hidden is not None:
            scores += hidden[start : start + step, None]
        out = scores.softmax(-1).to(q.dtype).flatten(1, 2) @ values
        outs.append(out.view(queries.shape).transpose(0, 1).flatten(1, 2))
        lses.append(scores.logsumexp(-1).transpose(0, 1).flatten(1))
    return _Result(torch.cat(outs), lambda: torch.cat(lses))


def _pick(x: Tensor, tokens: Tokens) -> Tensor:
    if tokens is None:
        return x
    return x[tokens] if isinstance(tokens, slice) else x.index_select(0, tokens)


def _put(x: Tensor, tokens: Tokens, values: Tensor) -> None:
    if isinstance(tokens, Tensor):
        x.index_copy_(0, tokens, values)
    else:
        x[tokens or slice(None)] = values


def _merge(out: Tensor, lse: Tensor, tokens: Tokens, item: _Result) -> None:
    """Merge an item with what these tokens have so far, each weighted by exp of its log-sum-exp."""
    so_far, item_lse = _pick(lse, tokens), item.lse()
    weight = torch.sigmoid(item_lse - so_far).unsqueeze(-1).to(out.dtype)
    _put(out, tokens, torch.lerp(_pick(out, tokens), item.out, weight))
    _put(lse, tokens, torch.logaddexp(so_far, item_lse))
