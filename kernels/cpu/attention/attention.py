"""Attention on a CPU.

A step is split into work items that are merged by their log-sum-exp: runs of keys that several
sequences share, and each sequence's own keys. Compiled loops read all of them in place.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...interface import Past
from ..jit.amx import can_multiply
from ..work_items import AttentionOutput, DecodeItem, Indices, InPlacePlan, ScoreMod, narrowed
from .decode import DecodeAttention
from .extend import ExtendAttention
from .in_place_plan import plan_in_place, unshared_rows_loop


class CpuAttention:
    """The `Attention` of a CPU, for keys and values of a dtype that `decode.can_read`. Computes in
    float32. dim: of a head, if known, for which loops are compiled now."""

    def __init__(self, dtype: torch.dtype, dim: int | None = None) -> None:
        self._decode, self._extend = DecodeAttention(None, dtype, dim), ExtendAttention(dtype=dtype)
        # a sum in another order may be rounded to another bfloat16 number before a product
        self._has_runs = dtype is not torch.bfloat16 or not can_multiply()
        unshared_rows_loop()  # now, not in a call's time

    def plan(self, past: Past, window: int | None = None) -> InPlacePlan:
        """As `Attention.plan`."""
        return plan_in_place(past, window, self._has_runs)

    @staticmethod
    def narrowed(plan: InPlacePlan, wanted: Indices) -> InPlacePlan:
        """As `Narrowing.narrowed`."""
        return narrowed(plan, wanted)

    @property
    def is_plain(self) -> bool:
        """Whether `attend` is not overridden, so that loops over all layers may compute it."""
        return type(self).attend is CpuAttention.attend

    def decode_item(self, plan: InPlacePlan) -> DecodeItem | None:
        """All that the plan consists of, of a step that only decodes, where this `is_plain`. Else
        None."""
        if not self.is_plain or not plan.is_decode:
            return None
        (item,) = plan.own
        assert isinstance(item, DecodeItem)
        return item

    def attend(
        self, q: Tensor, kv: Tensor, plan: InPlacePlan, scale: float, softcap: float | None = None
    ) -> Tensor:
        """As `Attention.attend`."""
        score_mod, dtype, q = ScoreMod(scale, softcap), q.dtype, q.float()
        output = AttentionOutput.like(q)
        for own in plan.own:
            if isinstance(own, DecodeItem):
                self._decode.attend(q, kv, own, score_mod, output)
            else:
                self._extend.attend(q, kv, own, score_mod, output)
        for run in plan.runs:
            self._extend.attend(q, kv, run, score_mod, output, is_merged=True)
        return output.out.to(dtype)
