"""Attention on a GPU: decode, extend and shared prefixes of a step, each by its own kernel; partial
results of a token are merged by their log-sum-exp."""

from __future__ import annotations

import torch
from torch import Tensor

from ...backend import Norm
from ...interface import Past, StepShape
from ..rotary import rotate_and_write
from ..rows import weight_of
from ..slot_table import SlotTable
from ..upload import uploaded
from .decode import DecodeItems, NewKeys, attend_decode
from .extend import ExtendItems, attend_extend
from .merge import merge
from .planner import Plan, Planner
from .static import StaticPlan

WAVES = 2  # programs for each multiprocessor
FEW_PROCESSORS = 16  # without a GPU, where kernels only run in tests


class GpuAttention:
    """The `StaticAttention` of a GPU.

    num_kv_heads, dtype: of the pool. group: query heads that share one of these; a wrong one costs
    time. spare: a slot whose keys and values are always finite. num_programs: enough to fill the
    device; None: read from it.
    """

    def __init__(
        self,
        device: torch.device,
        num_kv_heads: int,
        dtype: torch.dtype,
        group: int = 1,
        spare: int = 0,
        num_programs: int | None = None,
    ) -> None:
        self._device = device
        num_programs = num_programs or WAVES * _num_processors(device)
        self._planner = Planner(num_kv_heads, dtype, group, num_programs)
        self._table = SlotTable(device, spare)
        self._past: Past | None = None  # what the table was brought up to last
        self._no_partials = torch.empty(1, 1, 1, device=device)

    def plan(self, past: Past, window: int | None = None) -> Plan:
        """As `Attention.plan`."""
        if self._past is not past:
            self.update(past)
        items = self._planner.items(past, window)
        roots, extends, slots = items.roots, items.extends, self._table.slots
        arrays = [items.decodes, items.merges, *roots.arrays, *extends.arrays]
        decodes, merges, *others = uploaded(arrays, self._device)
        has_pieces = bool((extends.items[:, -1] >= 0).any())
        return Plan(
            DecodeItems(decodes, slots) if len(decodes) else None,
            ExtendItems(roots.tile, 0, True, slots, *others[:3]) if items.has_roots else None,
            ExtendItems(extends.tile, window or 0, has_pieces, slots, *others[3:])
            if len(extends.items)
            else None,
            merges,
            items.num_partials,
        )

    def static(self, shape: StepShape, window: int | None = None) -> StaticPlan:
        """As `StaticAttention.static`."""
        return StaticPlan(self._planner, self._table, shape, window)

    def reserve(self, num_rows: int, num_columns: int) -> None:
        """As `StaticAttention.reserve`."""
        self._table.reserve(num_rows, num_columns)

    def update(self, past: Past) -> bool:
        """As `StaticAttention.update`."""
        self._past = past
        return self._table.update(past)

    def forget(self) -> None:
        """As `StaticAttention.forget`."""
        self._past = None
        self._table.forget()

    def attend_new(
        self,
        qkv: Tensor,
        norm: Norm | None,
        cos_sin: Tensor,
        kv: Tensor,
        slots: Tensor,
        plan: Plan,
        scale: float,
    ) -> Tensor:
        """As `FusedAttention.attend_new`."""
        q = qkv[:, : qkv.shape[1] - 2 * kv.shape[1]]
        if plan.roots is None and plan.extends is None:
            new = NewKeys(weight_of(norm), torch.view_as_real(cos_sin), slots)
            return self._attend(q, kv, plan, scale, None, new)
        rotate_and_write(qkv, weight_of(norm), cos_sin, kv, slots)
        return self._attend(q, kv, plan, scale)

    def attend(
        self, q: Tensor, kv: Tensor, plan: Plan, scale: float, softcap: float | None = None
    ) -> Tensor:
        """As `Attention.attend`."""
        return self._attend(q, kv, plan, scale, softcap)

    def _attend(
        self,
        q: Tensor,
        kv: Tensor,
        plan: Plan,
        scale: float,
        softcap: float | None = None,
        new: NewKeys | None = None,
    ) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        partials = self._no_partials
        if plan.num_partials:
            shape = plan.num_partials, *q.shape[1:]
            partials = torch.empty(shape, dtype=torch.float32, device=q.device)
        lse = torch.empty(partials.shape[:2], dtype=torch.float32, device=q.device)
        into = out, partials, lse
        if plan.decodes is not None:
            attend_decode(q, kv, plan.decodes, *into, scale, softcap, new)
        for items in (plan.roots, plan.extends):
            if items is not None:
                attend_extend(q, kv, items, *into, plan.merges, scale, softcap)
        if plan.num_partials:
            merge(partials, lse, plan.merges, out)
        return out


def _num_processors(device: torch.device) -> int:
    if device.type != "cuda":
        return FEW_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
