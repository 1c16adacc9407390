"""Attention by FlashInfer's kernels (0.6.14 to 0.7.2): paged decode and prefill with page size one,
and shared roots read once, merged by their log-sum-exp."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ...interface import Past, StepShape
from ..upload import uploaded
from .flashinfer_plan import Heads, Rows, Settings, Wrapper, rows_of
from .flashinfer_static import Buffers, StaticPlan, StaticRows, StaticWrappers

WORKSPACE = 256 << 20  # bytes, for all wrappers of a runner
MAX_LISTED = 1 << 24  # slots of a recorded step


@dataclass(slots=True)
class Plan:
    """Rows of one step, and on the device their slots and the tokens of roots. window: as in
    `Settings`."""

    own: Rows
    slots: Tensor
    roots: Rows | None
    root_slots: Tensor
    root_tokens: Tensor
    window: int


@dataclass(slots=True)
class _Wrappers:
    """For the layers of one window: a wrapper runs what it was planned for last. planned: the plan,
    and its settings."""

    decode: Wrapper
    prefill: Wrapper
    shared: Wrapper
    planned: tuple[Plan, Settings] | None = None


class FlashInferAttention:
    """The `StaticAttention` of a GPU by FlashInfer; it records decode steps.

    num_heads, num_kv_heads, dim, dtype: of queries and of the pool. library: the module itself.
    num_slots: of the pool, whose spare slot comes behind them; 0: no step can be recorded. Raises
    ImportError where the library is not installed.
    """

    def __init__(
        self,
        device: torch.device,
        num_heads: int,
        num_kv_heads: int,
        dim: int,
        dtype: torch.dtype,
        library: Any = None,
        num_slots: int = 0,
    ) -> None:
        self._library = library or import_module("flashinfer")
        self._device, self._num_slots = device, num_slots
        self._heads = Heads(num_heads, num_kv_heads, dim, dtype)
        self._work = torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
        self._shared_work = torch.zeros_like(self._work)
        self._wrappers: dict[int, _Wrappers] = {}  # by the plans' window
        self._wrappers_for(-1)
        self._max_shape = 0, 0
        self._buffers: dict[tuple[int, bool], Buffers] = {}  # by window, and whether of roots
        self._static_decodes: dict[tuple[int, int], Wrapper] = {}  # by window and size

    def plan(self, past: Past, window: int | None = None) -> Plan:
        """As `Attention.plan`."""
        own, roots = rows_of(past, _window_left(window), has_roots=True)
        if roots is None:
            (slots,) = uploaded([own.slots], self._device)
            return Plan(own, slots, None, slots[:0], slots[:0], _window_left(window))
        found = uploaded([own.slots, roots.slots, roots.tokens], self._device)
        return Plan(own, found[0], roots, found[1], found[2].long(), _window_left(window))

    def attend(
        self,
        q: Tensor,
        kv: Tensor,
        plan: Plan | StaticPlan,
        scale: float,
        softcap: float | None = None,
    ) -> Tensor:
        """As `Attention.attend`."""
        queries = q.contiguous()
        if isinstance(plan, StaticPlan):
            return plan.attend(queries, kv, scale, softcap)
        wrappers, settings = self._wrappers_for(plan.window), Settings(plan.window, scale, softcap)
        wrapper = wrappers.decode if plan.own.is_decode else wrappers.prefill
        if (
            wrappers.planned is None
            or wrappers.planned[0] is not plan
            or (wrappers.planned[1] != settings)
        ):
            wrapper.plan(plan.own, plan.slots, settings)
            if plan.roots is not None:
                wrappers.shared.plan(plan.roots, plan.root_slots, settings)
            wrappers.planned = plan, settings
        if plan.roots is None:
            return wrapper.run(queries, kv)
        out, lse = wrapper.run_with_lse(queries, kv)
        tokens = plan.root_tokens
        other, other_lse = wrappers.shared.run_with_lse(queries.index_select(0, tokens), kv)
        merged, _ = self._library.merge_state(
            out.index_select(0, tokens), lse.index_select(0, tokens), other, other_lse
        )
        return out.index_copy_(0, tokens, merged)

    # --- recorded steps ----------------------------------------------------------------------

    def static(self, shape: StepShape, window: int | None = None) -> StaticRows | None:
        """As `StaticAttention.static`; None for steps with extends, which are run as they are."""
        if shape.has_extends or not self._num_slots:
            return None
        key = _window_left(window), shape.num_tokens
        buffers, shared = self._buffers_for(key[0], False), None
        if key not in self._static_decodes:
            self._static_decodes[key] = buffers.decode(shape.num_tokens)
        if shape.has_roots and window is None:
            shared = self._buffers_for(key[0], True).shared(shape.num_tokens)
        wrappers = StaticWrappers(
            self._static_decodes[key], shared, self._library.merge_state_in_place
        )
        return StaticRows(wrappers, shape.num_tokens, key[0], self._num_slots, buffers)

    def reserve(self, num_rows: int, num_columns: int) -> None:
        """As `StaticAttention.reserve`: how many slots a recorded step lists at most."""
        shape = num_rows, min(num_rows * num_columns, MAX_LISTED) + num_rows
        if shape != self._max_shape:
            self._max_shape = shape
            self._buffers, self._static_decodes = {}, {}

    def update(self, past: Past) -> bool:
        """As `StaticAttention.update`: nothing of it stays on the device."""
        return False

    def forget(self) -> None:
        """As `StaticAttention.forget`."""
        for wrappers in self._wrappers.values():
            wrappers.planned = None

    # --- wrappers ----------------------------------------------------------------------------

    def _wrappers_for(self, window: int) -> _Wrappers:
        """Made for the first step that needs them. All share their memory for split results, as
        the layers run one after another."""
        if window not in self._wrappers:
            heads, prefill = self._heads, self._library.BatchPrefillWithPagedKVCacheWrapper
            decode = self._library.BatchDecodeWithPagedKVCacheWrapper(
                self._work, "NHD", use_tensor_cores=heads.is_grouped, backend="fa2"
            )
            self._wrappers[window] = _Wrappers(
                Wrapper(decode, heads, True),
                Wrapper(prefill(self._work, "NHD", backend="fa2"), heads, False),
                Wrapper(prefill(self._shared_work, "NHD", backend="fa2"), heads, False),
            )
        return self._wrappers[window]

    def _buffers_for(self, window: int, is_of_roots: bool) -> Buffers:
        key = window, is_of_roots
        if key not in self._buffers:
            work = self._shared_work if is_of_roots else self._work
            self._buffers[key] = Buffers(self._library, self._heads, work, *self._max_shape)
        return self._buffers[key]


def _window_left(window: int | None) -> int:
    return -1 if window is None else window - 1
