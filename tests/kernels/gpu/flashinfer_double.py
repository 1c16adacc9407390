"""Replaces FlashInfer where there is no GPU: its calls, checked as it checks them, in plain
torch. It proves what we hand over, not what the library makes of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Wrapper:
    def __init__(self, workspace: Tensor, layout: str, **options: Any) -> None:
        assert layout == "NHD" and workspace.dtype is torch.uint8
        self.options = options
        self.given: tuple[Any, ...] = ()

    def run(self, q: Tensor, pages: tuple[Tensor, Tensor], return_lse: bool = False) -> Any:
        counts, indptr, slots, is_causal, window, softcap, scale = self.given
        outs, totals, first = [], [], 0
        for row, count in enumerate(counts):
            mine = slots[indptr[row] : indptr[row + 1]].long()
            keys, values = (page[mine, 0].double() for page in pages)  # [n, kv_heads, dim]
            group = q.shape[1] // keys.shape[1]
            keys, values = (x.repeat_interleave(group, 1) for x in (keys, values))
            scores = torch.einsum("qhd,khd->hqk", q[first : first + count].double(), keys) * scale
            if softcap:
                scores = (scores / softcap).tanh() * softcap
            places = torch.arange(count)[:, None] + len(mine) - count
            hidden = torch.zeros(count, len(mine), dtype=torch.bool)
            if is_causal:
                hidden |= torch.arange(len(mine)) > places
            if window >= 0:
                hidden |= torch.arange(len(mine)) < places - window
            scores = scores.masked_fill(hidden, -torch.inf)
            values = values.nan_to_num() if window >= 0 else values
            outs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).to(q.dtype))
            totals.append((scores.logsumexp(-1) * 1.4426950408889634).T.float())
            first += count
        assert first == len(q)
        out, total = torch.cat(outs), torch.cat(totals)
        return (out, total) if return_lse else out


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    def plan(
        self, indptr, indices, last_page_len, heads, kv_heads, dim, page_size, *,
        window_left, logits_soft_cap, q_data_type, kv_data_type, sm_scale,
    ) -> None:  # fmt: skip
        assert page_size == 1 and indices.dtype is indptr.dtype is torch.int32
        assert indptr.is_cpu and last_page_len.is_cpu and len(last_page_len) == len(indptr) - 1
        counts = [1] * len(last_page_len)
        self.given = (counts, indptr, indices, True, window_left, logits_soft_cap, sm_scale)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def plan(
        self, qo_indptr, indptr, indices, last_page_len, heads, kv_heads, dim, page_size, *,
        causal, window_left, logits_soft_cap, q_data_type, kv_data_type, sm_scale,
    ) -> None:  # fmt: skip
        assert page_size == 1 and indices.dtype is indptr.dtype is qo_indptr.dtype is torch.int32
        assert indptr.is_cpu and qo_indptr.is_cpu and len(qo_indptr) == len(indptr)
        counts = qo_indptr.diff().tolist()
        self.given = (counts, indptr, indices, causal, window_left, logits_soft_cap, sm_scale)


def merge_state(a: Tensor, s: Tensor, b: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    share = torch.sigmoid((t - s) / 1.4426950408889634)[..., None]
    return torch.lerp(a.float(), b.float(), share).to(a.dtype), torch.logaddexp2(s, t)


# --- sampling -------------------------------------------------------------------------------------


def softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    _check_rows(logits, temperature)
    return (logits / temperature[:, None]).softmax(-1)


def top_k_renorm_probs(probs: Tensor, top_k: Tensor) -> Tensor:
    _check_rows(probs, top_k)
    assert top_k.dtype is torch.int32 and bool(((top_k > 0) & (top_k <= probs.shape[1])).all())
    best = probs.sort(-1, descending=True).values
    least = best.gather(-1, top_k.long()[:, None] - 1)
    return _renormed(probs, probs >= least)


def top_p_renorm_probs(probs: Tensor, top_p: Tensor, is_deterministic: bool) -> Tensor:
    _check_rows(probs, top_p)
    best = probs.sort(-1, descending=True).values
    before = best.double().cumsum(-1) - best
    least = best.masked_fill(before >= top_p[:, None], torch.inf).amin(-1, keepdim=True)
    return _renormed(probs, probs >= least)


def min_p_sampling_from_probs(
    probs: Tensor, min_p: Tensor, *, deterministic: bool, seed: Tensor, offset: Tensor
) -> Tensor:
    _check_rows(probs, min_p)
    assert seed.dtype is offset.dtype is torch.int64 and len(seed) == len(offset) == 1
    probs = _renormed(probs, probs >= min_p[:, None] * probs.amax(-1, keepdim=True))
    state = torch.Generator().manual_seed(int(seed[0]))
    return torch.multinomial(probs, 1, generator=state)[:, 0].int()


def _check_rows(rows: Tensor, settings: Tensor) -> None:
    """One setting for each row, of numbers that are sound."""
    assert rows.dtype is torch.float32 and rows.is_contiguous() and rows.dim() == 2
    assert len(rows) == len(settings) and settings.dim() == 1 and settings.device == rows.device
    assert not rows.isnan().any()


def _renormed(probs: Tensor, is_kept: Tensor) -> Tensor:
    kept = probs * is_kept
    return kept / kept.sum(-1, keepdim=True)
