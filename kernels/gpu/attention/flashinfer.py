"""Attention by FlashInfer's kernels (0.6.14 to 0.7.2): paged decode and prefill with page size one,
and shared roots read once, merged by their log-sum-exp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...interface import Ints, Past
from ...sharing import find_runs

WORKSPACE = 256 << 20  # bytes, for all wrappers of a runner
MIN_TENSOR_CORE_GROUP = 4  # heads of a group from which tensor cores are faster for decode


class _Batch(NamedTuple):
    """Rows of queries, each over a list of slots.

    tokens: the queries of all rows, as indices into the batch; None: all, in order.
    counts, lengths: [rows] queries and slots of each. slots: of all rows. is_causal: the last
    queries of a row see the last of its slots.
    """

    tokens: Tensor | None
    counts: Ints
    lengths: Ints
    slots: Tensor
    is_causal: bool


@dataclass(slots=True)
class Plan:
    """Lists of one step. window: keys before its own that a query sees at most; -1: all."""

    own: _Batch
    roots: _Batch | None
    window: int


@dataclass(slots=True)
class _Wrappers:
    """FlashInfer's wrappers for the layers of one window: a wrapper runs what it was planned for
    last. planned: the plan, and the layers' scale and softcap."""

    decode: Any
    prefill: Any
    shared: Any
    planned: tuple[Plan, float, float | None] | None = None


class FlashInferAttention:
    """The `Attention` of a GPU by FlashInfer.

    num_heads, num_kv_heads, dim, dtype: of queries and of the pool. library: the module itself.
    Raises ImportError where it is not installed.
    """

    def __init__(
        self,
        device: torch.device,
        num_heads: int,
        num_kv_heads: int,
        dim: int,
        dtype: torch.dtype,
        library: Any = None,
    ) -> None:
        self._library = library or import_module("flashinfer")
        self._device, self._dtype = device, dtype
        self._sizes = num_heads, num_kv_heads, dim
        self._work = torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
        self._shared_work = torch.zeros_like(self._work)
        self._wrappers: dict[int, _Wrappers] = {}  # by the plans' window
        self._wrappers_for(-1)

    def plan(self, past: Past, window: int | None = None) -> Plan:
        """As `Attention.plan`."""
        offsets = np.zeros(len(past.rows), np.int32)
        roots = self._roots(past, offsets) if window is None else None
        ends = past.starts + past.lens
        spans = zip(past.rows.tolist(), offsets.tolist(), ends.tolist(), strict=True)
        slots = [past.table[row, first:end] for row, first, end in spans]
        own = _Batch(None, past.lens, ends - offsets, self._to_device(slots), True)
        return Plan(own, roots, -1 if window is None else window - 1)

    def attend(
        self, q: Tensor, kv: Tensor, plan: Plan, scale: float, softcap: float | None = None
    ) -> Tensor:
        """As `Attention.attend`."""
        wrappers = self._wrappers_for(plan.window)
        planned = wrappers.planned
        if planned is None or planned[0] is not plan or planned[1:] != (scale, softcap):
            self._prepare(wrappers, plan, scale, softcap)
        pages = kv.transpose(1, 2).unsqueeze(2)  # [2, slots, 1, kv_heads, dim]
        queries = q.contiguous()
        wrapper = wrappers.decode if _is_decode(plan.own) else wrappers.prefill
        if plan.roots is None:
            out: Tensor = wrapper.run(queries, (pages[0], pages[1]))
            return out
        out, lse = wrapper.run(queries, (pages[0], pages[1]), return_lse=True)
        assert plan.roots.tokens is not None
        shared_queries = queries.index_select(0, plan.roots.tokens)
        other, other_lse = wrappers.shared.run(
            shared_queries, (pages[0], pages[1]), return_lse=True
        )
        merged, _ = self._library.merge_state(
            out.index_select(0, plan.roots.tokens),
            lse.index_select(0, plan.roots.tokens),
            other,
            other_lse,
        )
        return out.index_copy_(0, plan.roots.tokens, merged)

    def _wrappers_for(self, window: int) -> _Wrappers:
        """Made for the first step that needs them. All share their memory for split results, as
        the layers run one after another."""
        if window not in self._wrappers:
            num_heads, num_kv_heads, _ = self._sizes
            is_grouped = num_heads // num_kv_heads >= MIN_TENSOR_CORE_GROUP
            prefill = self._library.BatchPrefillWithPagedKVCacheWrapper
            self._wrappers[window] = _Wrappers(
                self._library.BatchDecodeWithPagedKVCacheWrapper(
                    self._work, "NHD", use_tensor_cores=is_grouped, backend="fa2"
                ),
                prefill(self._work, "NHD", backend="fa2"),
                prefill(self._shared_work, "NHD", backend="fa2"),
            )
        return self._wrappers[window]

    def _prepare(
        self, wrappers: _Wrappers, plan: Plan, scale: float, softcap: float | None
    ) -> None:
        wrapper = wrappers.decode if _is_decode(plan.own) else wrappers.prefill
        batches = [(wrapper, plan.own, plan.window)]
        batches += [(wrappers.shared, plan.roots, -1)] if plan.roots is not None else []
        for wrapper, batch, window in batches:
            of_queries = () if wrapper is wrappers.decode else (_offsets(batch.counts),)
            wrapper.plan(
                *of_queries,
                _offsets(batch.lengths),
                batch.slots,
                torch.ones(len(batch.lengths), dtype=torch.int32),
                *self._sizes,
                1,
                **({} if wrapper is wrappers.decode else {"causal": batch.is_causal}),
                window_left=window,
                logits_soft_cap=softcap,
                q_data_type=self._dtype,
                kv_data_type=self._dtype,
                sm_scale=scale,
            )
        wrappers.planned = plan, scale, softcap

    def _roots(self, past: Past, offsets: Ints) -> _Batch | None:
        """Shared roots of decode tokens, at most the outermost of each; moves their offsets."""
        decode_rows = np.flatnonzero(past.lens == 1)
        firsts = np.cumsum(past.lens) - past.lens
        some = Past(
            past.table, past.rows[decode_rows], past.starts[decode_rows], past.lens[decode_rows]
        )
        runs = [run for run in find_runs(some, np.ones(len(decode_rows), bool)) if run.start == 0]
        if not runs:
            return None
        tokens = []
        for run in runs:
            members = decode_rows[list(run.sequences)]
            offsets[members] = run.end
            tokens.append(firsts[members])
        counts = np.array([len(it) for it in tokens], np.int32)
        lengths = np.array([len(run.slots) for run in runs], np.int32)
        where = torch.from_numpy(np.concatenate(tokens).astype(np.int64))
        where = where.to(self._device, non_blocking=True)
        return _Batch(where, counts, lengths, self._to_device([run.slots for run in runs]), False)

    def _to_device(self, slots: Sequence[Ints]) -> Tensor:
        joined = torch.from_numpy(np.concatenate(slots).astype(np.int32, copy=False))
        return joined.to(self._device, non_blocking=True)


def _is_decode(batch: _Batch) -> bool:
    return bool((batch.counts == 1).all())


def _offsets(counts: Ints) -> Tensor:
    """[n + 1] where each of these begins; on the host, where plans read it without waiting."""
    return torch.from_numpy(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
