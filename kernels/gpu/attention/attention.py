"""Attention on a GPU: a step cut into what single tokens read, what chunks read, and roots that
several single tokens share, each by its own kernel, put together by their log-sum-exp."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...interface import Past
from ..upload import uploaded
from .chunks import Parts, attend_parts
from .cutting import Cutter, Plan, chunk_of, ints, parts_of, seen_from, singles_of
from .merge import merge
from .static import StaticPlan
from .tokens import Singles, attend_tokens

WAVES = 2  # programs for each multiprocessor
FEW_PROCESSORS = 16  # where there is no GPU to ask: kernels are then run to be checked


class GpuAttention:
    """The `StaticAttention` of a GPU.

    num_kv_heads, dtype: of the pool. group: query heads that share one of these; a wrong one costs
    time. num_programs: at which a kernel fills the device; None: found out.
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
        self._cutter = Cutter(num_kv_heads, dtype, group, num_programs)

    def plan(self, past: Past, window: int | None = None) -> Plan:
        """As `Attention.plan`."""
        firsts = ints(np.cumsum(past.lens) - past.lens)
        single, several = (ints(np.flatnonzero(it)) for it in (past.lens == 1, past.lens > 1))
        offsets = seen_from(past, window)
        longest = int((past.starts[single] + 1 - offsets[single]).max(initial=0))
        splits = self._cutter.splits(len(single), longest, int(past.lens.sum()))
        roots = self._cutter.roots(past, single, firsts, offsets, splits)
        chunks = [chunk_of(past, s, int(firsts[s])) for s in several.tolist()]
        tiles = [
            self._cutter.tile(max((len(part.tokens) for part in parts), default=1))
            for parts in (chunks, roots)
        ]
        sources = [
            singles_of(past, single, firsts, offsets),
            parts_of(chunks, tiles[0]),
            parts_of(roots, tiles[1]),
        ]
        tensors = iter(uploaded([array for source in sources for array in source], self._device))
        given = [[next(tensors) for _ in source] for source in sources]
        return Plan(
            Singles(splits, *given[0]) if len(single) else None,
            Parts(tiles[0], window or 0, *given[1]) if chunks else None,
            Parts(tiles[1], 0, *given[2]) if roots else None,
            max([splits if len(single) else 1, *(part.level + 1 for part in roots)]),
        )

    def static(self, size: int, has_roots: bool) -> StaticPlan:
        """As `StaticAttention.static`."""
        return StaticPlan(self._cutter, size, has_roots)

    def attend(
        self, q: Tensor, kv: Tensor, plan: Plan, scale: float, softcap: float | None = None
    ) -> Tensor:
        """As `Attention.attend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if plan.levels == 1:
            parts, totals = out[None], q.new_empty((1, *q.shape[:2]), dtype=torch.float32)
        else:
            parts = q.new_empty((plan.levels, *q.shape), dtype=torch.float32)
            totals = q.new_full((plan.levels, *q.shape[:2]), -torch.inf, dtype=torch.float32)
        if plan.singles is not None:
            attend_tokens(q, kv, plan.singles, parts, totals, scale, softcap)
        for some in (plan.chunks, plan.roots):
            if some is not None:
                attend_parts(q, kv, some, parts, totals, scale, softcap)
        if plan.levels > 1:
            merge(parts, totals, out)
        return out


def _num_processors(device: torch.device) -> int:
    if device.type != "cuda":
        return FEW_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
