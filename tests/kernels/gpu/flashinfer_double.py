"""Stands in for FlashInfer where there is no GPU: its calls, checked as it checks them, in plain
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
