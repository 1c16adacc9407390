"""A batch of plain ints as tensors: made once a step, shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...kernels import Attention, Past
from .batch import Batch
from .layers import RotaryEmbedding


@dataclass(frozen=True, slots=True)
class Inputs:
    """ids, slots: [tokens]. angles: [tokens, 1, dim / 2]. wanted: [rows] the tokens whose hidden
    state is wanted: those sampled, then those scored; None: every token, once and in order. plan:
    what the attention kernel made of the batch's slots."""

    ids: Tensor
    slots: Tensor
    angles: Tensor
    wanted: Tensor | None
    plan: Any

    @classmethod
    def of(
        cls, batch: Batch, rope: RotaryEmbedding, attention: Attention, device: torch.device
    ) -> Inputs:
        """Bring a batch to the device."""
        past = Past(batch.table, batch.rows, batch.starts, batch.lens)
        return cls(
            ids=to_tensor(batch.ids, device),
            slots=to_tensor(batch.slots.astype(np.int64), device),
            angles=rope.angles(to_tensor(batch.positions, device)),
            wanted=_wanted(batch, device),
            plan=attention.plan(past),
        )


def _wanted(batch: Batch, device: torch.device) -> Tensor | None:
    if not len(batch.scored) and np.array_equal(batch.sampled, np.arange(len(batch.ids))):
        return None
    return to_tensor(np.concatenate((batch.sampled, batch.scored)), device)


def to_tensor(values: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """The same numbers on the device; on a CPU the same memory."""
    return torch.from_numpy(values).to(device, non_blocking=True)
