"""A batch of plain ints as tensors: made once a step, shared by all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels.gpu.upload import uploaded
from ...kernels.interface import Attention, Past
from ..api.batch import Batch, Ints, Longs


class Spliced(NamedTuple):
    """Features of pictures in a batch. tokens: [n] which of its tokens they replace. values: [n,
    width]: embeddings, and behind these what each of the first layers adds to its output."""

    tokens: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Inputs:
    """ids, positions, slots: [tokens]. wanted: [rows] the tokens whose hidden state is wanted:
    those sampled, then those scored, then those queried; None: every token, once and in order.
    plans: what the attention kernel made of the batch's slots, for each of the model's windows.
    past: which slots these are; None in recorded steps. spliced: features of pictures; the ids of
    these tokens are 0. parts: [3, tokens] rotary positions where they are not `positions`."""

    ids: Tensor
    positions: Tensor
    slots: Tensor
    wanted: Tensor | None
    plans: tuple[Any, ...]
    past: Past | None = None
    spliced: Spliced | None = None
    parts: Tensor | None = None

    @classmethod
    def of(
        cls,
        batch: Batch,
        windows: Sequence[int | None],
        attention: Attention,
        device: torch.device,
        sampled_ids: Tensor | None = None,
        features: Sequence[Tensor] = (),
    ) -> Inputs:
        """Bring a batch to the device, without waiting for it. sampled_ids: the samples that
        its ids may refer to, as in `named`; None: they refer to none. features: of each of its
        spans of pictures."""
        past = past_of(batch)
        wanted, plans = wanted_of(batch), tuple(_plans(past, windows, attention))
        replaced = _replaced(batch)
        ids_only = batch.ids.copy() if len(replaced) else batch.ids
        ids_only[replaced] = 0
        arrays: list[np.ndarray[Any, Any]] = [ids_only, batch.positions, batch.slots]
        arrays += [] if wanted is None else [wanted]
        arrays += [] if batch.parts is None else [batch.parts]
        arrays += [replaced] if len(replaced) else []
        if device.type == "cpu":
            tensors = [torch.from_numpy(array.astype(np.int64, copy=False)) for array in arrays]
        else:
            small = [array.astype(np.int32, copy=False) for array in arrays]
            tensors = [tensor.long() for tensor in uploaded(small, device)]
        spliced = Spliced(tensors.pop(), torch.cat(list(features))) if len(replaced) else None
        parts = None if batch.parts is None else tensors.pop().reshape(3, -1)
        ids, positions, slots, *rest = tensors
        if sampled_ids is not None:
            ids = named(ids, sampled_ids)
        return cls(ids, positions, slots, rest[0] if rest else None, plans, past, spliced, parts)


def _replaced(batch: Batch) -> Longs:
    """Which tokens are features of pictures."""
    spans = [np.arange(span.start, span.end) for span in batch.media]
    return np.concatenate(spans) if spans else np.empty(0, np.int64)


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
