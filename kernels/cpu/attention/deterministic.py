"""Attention whose results for a token depend on that token and those before it alone: not on how
its prompt was divided into steps, on what was cached, or on what is computed beside it.

The other attention of a CPU has a loop for one new token, one for several and one for many, and
reads shared keys once for all. Each sums in its own order. Here one loop computes every token, over
blocks of its own sequence's keys that begin at its first one.
"""

from __future__ import annotations

import numpy as np
import torch

from ...interface import Past
from ..work_items import ExtendItem, InPlacePlan
from .attention import CpuAttention
from .extend import ExtendAttention


class DeterministicAttention(CpuAttention):
    """As `CpuAttention`; a token gets the same bits in any step."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self._extend = ExtendAttention(dtype=dtype, has_amx=False)

    def plan(self, past: Past, window: int | None = None) -> InPlacePlan:
        """As `Attention.plan`."""
        ends, bounds = past.starts + past.lens, np.concatenate(([0], np.cumsum(past.lens)))
        item = ExtendItem(
            tokens=np.arange(bounds[-1]),
            table=past.table,
            rows=past.rows,
            firsts=np.zeros_like(ends),
            starts=past.starts,
            ends=ends,
            bounds=bounds,
            window=window,
            num_scores=int((past.lens * ends).sum()),
        )
        return InPlacePlan((item,), ())
