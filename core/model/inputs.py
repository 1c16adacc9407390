"""A batch of plain ints as tensors: made once a step, shared by all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...kernels import Attention, Past
from .batch import Batch


@dataclass(frozen=True, slots=True)
class Inputs:
    """ids, positions, slots: [tokens]. wanted: [rows] the tokens whose hidden state is wanted:
    those sampled, then those scored, then those queried; None: every token, once and in order.
    plans: what the attention kernel made of the batch's slots, for each of the model's windows."""

    ids: Tensor
    positions: Tensor
    slots: Tensor
    wanted: Tensor | None
    plans: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        batch: Batch,
        windows: Sequence[int | None],
        attention: Attention,
        device: torch.device,
    ) -> Inputs:
        """Bring a batch to the device."""
        return cls(
            ids=to_tensor(batch.ids, device),
            positions=to_tensor(batch.positions, device),
            slots=to_tensor(batch.slots.astype(np.int64), device),
            wanted=_wanted(batch, device),
            plans=tuple(_plans(batch, windows, attention)),
        )


def _plans(batch: Batch, windows: Sequence[int | None], attention: Attention) -> list[Any]:
    """A window that is longer than all sequences needs no plan of its own."""
    past = Past(batch.table, batch.rows, batch.starts, batch.lens)
    if len(windows) == 1:
        return [attention.plan(past, windows[0])]
    longest = int((batch.starts + batch.lens).max())
    needed = [None if window is None or window >= longest else window for window in windows]
    plans = {window: attention.plan(past, window) for window in dict.fromkeys(needed)}
    return [plans[window] for window in needed]


def _wanted(batch: Batch, device: torch.device) -> Tensor | None:
    num_told = len(batch.scored) + len(batch.queried)
    if not num_told and np.array_equal(batch.sampled, np.arange(len(batch.ids))):
        return None
    return to_tensor(np.concatenate((batch.sampled, batch.scored, batch.queried)), device)


def to_tensor(values: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """The same numbers on the device; on a CPU the same memory."""
    return torch.from_numpy(values).to(device, non_blocking=True)
