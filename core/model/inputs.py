"""A batch of plain ints as tensors: made once a step, shared by all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...kernels.gpu.upload import uploaded
from ...kernels.interface import Attention, Past
from ..api.batch import Batch, Ints


@dataclass(frozen=True, slots=True)
class Inputs:
    """ids, positions, slots: [tokens]. wanted: [rows] the tokens whose hidden state is wanted:
    those sampled, then those scored, then those queried; None: every token, once and in order.
    plans: what the attention kernel made of the batch's slots, for each of the model's windows.
    past: which slots these are; None in recorded steps."""

    ids: Tensor
    positions: Tensor
    slots: Tensor
    wanted: Tensor | None
    plans: tuple[Any, ...]
    past: Past | None = None

    @classmethod
    def of(
        cls,
        batch: Batch,
        windows: Sequence[int | None],
        attention: Attention,
        device: torch.device,
        sampled_ids: Tensor | None = None,
    ) -> Inputs:
        """Bring a batch to the device, without waiting for it. sampled_ids: the samples that
        its ids may refer to, as in `named`; None: they refer to none."""
        past = past_of(batch)
        wanted, plans = wanted_of(batch), tuple(_plans(past, windows, attention))
        arrays: list[np.ndarray[Any, Any]] = [batch.ids, batch.positions, batch.slots]
        arrays += [] if wanted is None else [wanted]
        if device.type == "cpu":
            tensors = [torch.from_numpy(array.astype(np.int64, copy=False)) for array in arrays]
        else:
            small = [array.astype(np.int32, copy=False) for array in arrays]
            tensors = [tensor.long() for tensor in uploaded(small, device)]
        ids, positions, slots, *rest = tensors
        if sampled_ids is not None:
            ids = named(ids, sampled_ids)
        return cls(ids, positions, slots, rest[0] if rest else None, plans, past)


def past_of(batch: Batch) -> Past:
    """Which slots the batch reads."""
    return Past(batch.table, batch.rows, batch.starts, batch.lens, batch.changed)


def _plans(past: Past, windows: Sequence[int | None], attention: Attention) -> list[Any]:
    """A window that is longer than all sequences needs no plan of its own."""
    if len(windows) == 1:
        return [attention.plan(past, windows[0])]
    longest = int((past.starts + past.lens).max())
    needed = [None if window is None or window >= longest else window for window in windows]
    plans = {window: attention.plan(past, window) for window in dict.fromkeys(needed)}
    return [plans[window] for window in needed]


def wanted_of(batch: Batch) -> Ints | None:
    """Which tokens' hidden states are wanted, as in `Inputs`."""
    num_unsampled = len(batch.scored) + len(batch.queried)
    if not num_unsampled and len(batch.sampled) == len(batch.ids):
        return None  # each is sampled once
    return np.concatenate((batch.sampled, batch.scored, batch.queried))


def named(ids: Tensor, sampled_ids: Tensor) -> Tensor:
    """Ids in which -1 - i is replaced by sampled_ids[i], or by token 0 where that is negative."""
    return torch.where(ids < 0, sampled_ids[(-1 - ids).clamp_(min=0)].clamp_(min=0), ids)


def to_tensor(values: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    """The same numbers on the device, not waited for; on a CPU the same memory."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
