"""Attention on a GPU: decode, extend and shared prefixes of a step, each by its own kernel; partial
results of a token are merged by their log-sum-exp."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...interface import Past
from ..upload import uploaded
from .decode import DecodeItems, attend_decode
from .extend import ExtendItems, attend_extend
from .merge import merge
from .planner import Plan, Planner, decode_arrays, extend_arrays, extend_item, first_visible, ints
from .static import StaticPlan

WAVES = 2  # programs for each multiprocessor
FEW_PROCESSORS = 16  # without a GPU, where kernels only run in tests


class GpuAttention:
    """The `StaticAttention` of a GPU.

    num_kv_heads, dtype: of the pool. group: query heads that share one of these; a wrong one costs
    time. num_programs: enough to fill the device; None: read from it.
    """

    def __init__(
        self,
        device: torch.device,
        num_kv_heads: int,
        dtype: torch.dtype,
        group: int = 1,
        num_programs: int | None = None,
    ) -> None:
        self._device = device
        num_programs = num_programs or WAVES * _num_processors(device)
        self._planner = Planner(num_kv_heads, dtype, group, num_programs)

    def plan(self, past: Past, window: int | None = None) -> Plan:
        """As `Attention.plan`."""
        firsts = ints(np.cumsum(past.lens) - past.lens)
        decode_rows, extend_rows = (
            ints(np.flatnonzero(it)) for it in (past.lens == 1, past.lens > 1)
        )
        offsets = first_visible(past, window)
        longest = int((past.starts[decode_rows] + 1 - offsets[decode_rows]).max(initial=0))
        splits = self._planner.splits(len(decode_rows), longest, int(past.lens.sum()))
        roots = self._planner.roots(past, decode_rows, firsts, offsets, splits)
        extends = [extend_item(past, s, int(firsts[s])) for s in extend_rows.tolist()]
        tiles = [
            self._planner.tile(max((len(item.tokens) for item in items), default=1))
            for items in (extends, roots)
        ]
        sources = [
            decode_arrays(past, decode_rows, firsts, offsets),
            extend_arrays(extends, tiles[0]),
            extend_arrays(roots, tiles[1]),
        ]
        tensors = iter(uploaded([array for source in sources for array in source], self._device))
        given = [[next(tensors) for _ in source] for source in sources]
        return Plan(
            DecodeItems(splits, *given[0]) if len(decode_rows) else None,
            ExtendItems(tiles[0], window or 0, *given[1]) if extends else None,
            ExtendItems(tiles[1], 0, *given[2]) if roots else None,
            max([splits if len(decode_rows) else 1, *(item.level + 1 for item in roots)]),
        )

    def static(self, size: int, has_roots: bool) -> StaticPlan:
        """As `StaticAttention.static`."""
        return StaticPlan(self._planner, size, has_roots)

    def attend(
        self, q: Tensor, kv: Tensor, plan: Plan, scale: float, softcap: float | None = None
    ) -> Tensor:
        """As `Attention.attend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if plan.levels == 1:
            partials, lse = out[None], q.new_empty((1, *q.shape[:2]), dtype=torch.float32)
        else:
            partials = q.new_empty((plan.levels, *q.shape), dtype=torch.float32)
            lse = q.new_full((plan.levels, *q.shape[:2]), -torch.inf, dtype=torch.float32)
        if plan.decodes is not None:
            attend_decode(q, kv, plan.decodes, partials, lse, scale, softcap)
        for extend_items in (plan.extends, plan.roots):
            if extend_items is not None:
                attend_extend(q, kv, extend_items, partials, lse, scale, softcap)
        if plan.levels > 1:
            merge(partials, lse, out)
        return out


def _num_processors(device: torch.device) -> int:
    if device.type != "cuda":
        return FEW_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
