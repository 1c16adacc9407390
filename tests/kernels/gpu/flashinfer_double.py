"""Replaces FlashInfer where there is no GPU: its calls, with the parameters of the versions that
were checked, in plain torch. It proves what we hand over, not what the library makes of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .flashinfer_signatures import SIGNATURES

Function = Callable[..., Any]
PLAN_BYTES = 8 << 20  # that a wrapper allocates on its device


def called_as(name: str) -> Callable[[Function], Function]:
    """A function that takes what the library's takes in each version, and refuses all that this
    double does not understand unless it has its default."""

    def decorate(function: Function) -> Function:
        known = set(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for signature in SIGNATURES.values():
                bound = signature[name].bind(*args, **kwargs)
                unknown = set(bound.arguments) - known
                assert not unknown, f"the double of {name} does not know {unknown}"
                bound.apply_defaults()
            return function(**{key: bound.arguments[key] for key in known})

        return call

    return decorate


class _Wrapper:
    """use_cuda_graph: lists of slots are copied into the buffers, and runs read these. What a
    recorded run has as a plain number may not change after it."""

    def __init__(
        self, float_workspace_buffer: Tensor, kv_layout: str, use_cuda_graph: bool, *buffers: Any
    ) -> None:
        assert kv_layout == "NHD" and float_workspace_buffer.dtype is torch.uint8
        self._is_static, self._has_run = use_cuda_graph, False
        device = float_workspace_buffer.device
        self._plan_work = torch.empty(PLAN_BYTES, dtype=torch.uint8, device=device)
        self._lists, self._settings = buffers, ()
        if use_cuda_graph:
            assert all(buffer.dtype is torch.int32 for buffer in buffers)
            assert (
                len({len(buffer) for buffer in (buffers[0][1:], buffers[1][1:], buffers[3])}) == 1
            )

    def _plan(
        self, lists: tuple[Tensor, ...], sizes: tuple[int, ...], settings: tuple[Any, ...]
    ) -> None:
        """lists: where queries and slots of each row begin, the slots, and how many of the last
        page's are used."""
        counts, indptr, indices, last_page_len = lists
        assert all(it.dtype is torch.int32 for it in lists)
        assert counts.is_cpu and indptr.is_cpu and last_page_len.is_cpu
        assert len(counts) == len(indptr) == len(last_page_len) + 1
        assert int(indptr[-1]) == len(indices) and bool((counts.diff() >= 0).all())
        assert bool((indptr.diff() > 0).all()) and bool((last_page_len == 1).all())
        assert sizes[3] == 1 and sizes[0] % sizes[1] == 0
        if self._is_static:
            assert not self._has_run or settings == self._settings
            for buffer, values in zip(self._lists, lists, strict=True):
                assert len(values) == len(buffer) or values is indices
                buffer[: len(values)].copy_(values)
        else:
            self._lists = lists
        self._settings = settings

    def _run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], return_lse: bool) -> Any:
        is_causal, window, softcap, scale, dtypes = self._settings
        assert (q.dtype, paged_kv_cache[0].dtype) == dtypes and q.is_contiguous()
        self._has_run = True
        firsts, indptr, slots, _ = self._lists
        outs, totals, first = [], [], 0
        for row, count in enumerate(firsts.diff().tolist()):
            mine = slots[indptr[row] : indptr[row + 1]].long()
            keys, values = (page[mine, 0].double() for page in paged_kv_cache)  # [n, kv_heads, dim]
            group = q.shape[1] // keys.shape[1]
            keys, values = (x.repeat_interleave(group, 1) for x in (keys, values))
            scores = torch.einsum("qhd,khd->hqk", q[first : first + count].double(), keys) * scale
            if softcap:
                scores = (scores / softcap).tanh() * softcap
            places = torch.arange(count, device=q.device)[:, None] + len(mine) - count
            keys_at = torch.arange(len(mine), device=q.device)
            hidden = torch.zeros(count, len(mine), dtype=torch.bool, device=q.device)
            if is_causal:
                hidden |= keys_at > places
            if window >= 0:
                hidden |= keys_at < places - window
            scores = scores.masked_fill(hidden, -torch.inf)
            values = values.nan_to_num() if window >= 0 else values
            outs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).to(q.dtype))
            totals.append((scores.logsumexp(-1) * 1.4426950408889634).T.float())
            first += count
        assert first == len(q)
        out, total = torch.cat(outs), torch.cat(totals)
        return (out, total) if return_lse else out


_DECODE, _PREFILL = "BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper"


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    @called_as(f"{_DECODE}.__init__")
    def __init__(
        self, float_workspace_buffer, kv_layout, use_cuda_graph, use_tensor_cores,
        paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer, backend,
    ) -> None:  # fmt: skip
        assert backend == "fa2"  # "auto" may be cuDNN from 0.7.2 on
        firsts = None if not use_cuda_graph else paged_kv_indptr_buffer.clone()
        super().__init__(
            float_workspace_buffer, kv_layout, use_cuda_graph, firsts, paged_kv_indptr_buffer,
            paged_kv_indices_buffer, paged_kv_last_page_len_buffer,
        )  # fmt: skip

    @called_as(f"{_DECODE}.plan")
    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        window_left, logits_soft_cap, q_data_type, kv_data_type, sm_scale,
    ) -> None:  # fmt: skip
        firsts = torch.arange(len(indptr), dtype=torch.int32)
        dtypes = (q_data_type, kv_data_type)
        self._plan(
            (firsts, indptr, indices, last_page_len),
            (num_qo_heads, num_kv_heads, head_dim, page_size),
            (True, window_left, logits_soft_cap, sm_scale, dtypes),
        )

    @called_as(f"{_DECODE}.reset_workspace_buffer")
    def reset_workspace_buffer(self, float_workspace_buffer, int_workspace_buffer) -> None:
        assert int_workspace_buffer.dtype is float_workspace_buffer.dtype is torch.uint8
        self._plan_work = int_workspace_buffer

    @called_as(f"{_DECODE}.run")
    def run(self, q, paged_kv_cache, return_lse) -> Any:
        return self._run(q, paged_kv_cache, return_lse)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    @called_as(f"{_PREFILL}.__init__")
    def __init__(
        self, float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, paged_kv_indptr_buf,
        paged_kv_indices_buf, paged_kv_last_page_len_buf, backend,
    ) -> None:  # fmt: skip
        assert backend in ("fa2", "fa3")
        super().__init__(
            float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, paged_kv_indptr_buf,
            paged_kv_indices_buf, paged_kv_last_page_len_buf,
        )  # fmt: skip
        self._most = 0

    @called_as(f"{_PREFILL}.plan")
    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads,
        num_kv_heads, head_dim_qk, page_size, causal, window_left, logits_soft_cap, q_data_type,
        kv_data_type, sm_scale,
    ) -> None:  # fmt: skip
        self._most = self._most or int(qo_indptr[-1])
        assert not self._is_static or int(qo_indptr[-1]) <= self._most
        self._plan(
            (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len),
            (num_qo_heads, num_kv_heads, head_dim_qk, page_size),
            (causal, window_left, logits_soft_cap, sm_scale, (q_data_type, kv_data_type)),
        )

    @called_as(f"{_PREFILL}.reset_workspace_buffer")
    def reset_workspace_buffer(self, float_workspace_buffer, int_workspace_buffer) -> None:
        assert int_workspace_buffer.dtype is float_workspace_buffer.dtype is torch.uint8
        self._plan_work = int_workspace_buffer

    @called_as(f"{_PREFILL}.run")
    def run(self, q, paged_kv_cache, return_lse) -> Any:
        return self._run(q, paged_kv_cache, return_lse)


@called_as("merge_state")
def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
    share = torch.sigmoid((s_b - s_a) / 1.4426950408889634)[..., None]
    merged = torch.lerp(v_a.float(), v_b.float(), share).to(v_a.dtype)
    return merged, torch.logaddexp2(s_a, s_b)


@called_as("merge_state_in_place")
def merge_state_in_place(
    v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor, mask: Tensor
) -> None:
    assert s.dtype is torch.float32 and mask.dtype is torch.bool and len(mask) == len(v)
    merged, total = merge_state(v, s, v_other, s_other)
    v.copy_(torch.where(mask[:, None, None], merged, v))
    s.copy_(torch.where(mask[:, None], total, s))


# --- sampling -------------------------------------------------------------------------------------


@called_as("sampling.softmax")
def softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    _check_rows(logits, temperature)
    return (logits / temperature[:, None]).softmax(-1)


@called_as("sampling.top_k_renorm_probs")
def top_k_renorm_probs(probs: Tensor, top_k: Tensor) -> Tensor:
    _check_rows(probs, top_k)
    assert top_k.dtype is torch.int32 and bool(((top_k > 0) & (top_k <= probs.shape[1])).all())
    best = probs.sort(-1, descending=True).values
    least = best.gather(-1, top_k.long()[:, None] - 1)
    return _renormed(probs, probs >= least)


@called_as("sampling.top_p_renorm_probs")
def top_p_renorm_probs(probs: Tensor, top_p: Tensor, is_deterministic: bool) -> Tensor:
    _check_rows(probs, top_p)
    best = probs.sort(-1, descending=True).values
    before = best.double().cumsum(-1) - best
    least = best.masked_fill(before >= top_p[:, None], torch.inf).amin(-1, keepdim=True)
    return _renormed(probs, probs >= least)


@called_as("sampling.min_p_sampling_from_probs")
def min_p_sampling_from_probs(
    probs: Tensor, min_p: Tensor, deterministic: bool, seed: Tensor, offset: Tensor
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
