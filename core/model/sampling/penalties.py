"""What calls change in their logits: penalties, biases and bans, for all rows at once.

A change is a list of places in the matrix of logits, seen as one long row. It costs what the
listed tokens cost; the vocabulary is copied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...api.batch import SamplingParams
from ..inputs import to_tensor


class _Change(NamedTuple):
    """The same number, or one for each, at token ids of one row."""

    row: int
    ids: Sequence[int] | np.ndarray[Any, Any]
    values: float | Sequence[float]


def changed(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """The logits [N, vocabulary] themselves if no row changes any, else a changed copy.

    The repetition penalty comes first, on the model's logits; then presence and frequency
    penalties, biases, bans.
    """
    rows = [(row, it) for row, it in enumerate(params) if is_changing(it)]
    if not rows:
        return logits
    flat, size = logits.flatten().clone(), logits.shape[-1]
    repetitions = (
        _Change(row, ids[ids < size], it.repetition_penalty)  # prompts may hold keys of pictures
        for row, it in rows
        if it.repetition_penalty != 1.0
        for ids in (it.prompt, it.generated)
        if ids is not None
    )
    for index, values in _merged(repetitions, logits):
        now = flat[index]
        flat[index] = torch.where(now > 0, now / values, now * values)
    written = [(row, it, it.generated) for row, it in rows if it.generated is not None]
    presences = (
        _Change(r, ids, it.presence_penalty) for r, it, ids in written if it.presence_penalty
    )
    for index, values in _merged(presences, logits):
        flat[index] = flat[index] - values  # once for an id, however often it is listed
    frequencies = (
        _Change(r, ids, it.frequency_penalty) for r, it, ids in written if it.frequency_penalty
    )
    for index, values in _merged(frequencies, logits):
        flat.index_add_(0, index, values, alpha=-1)
    biases = (_Change(r, *zip(*it.logit_bias, strict=True)) for r, it in rows if it.logit_bias)
    for index, values in _merged(biases, logits):
        flat.index_add_(0, index, values)
    bans = (_Change(r, it.banned, -np.inf) for r, it in rows if it.banned)
    for index, values in _merged(bans, logits):
        flat[index] = values
    return flat.view(logits.shape)


def is_changing(params: SamplingParams) -> bool:
    """Whether a call changes its logits, by more than a mask."""
    return bool(params.generated is not None or params.logit_bias or params.banned)


def _merged(changes: Iterable[_Change], logits: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """All changes, of one kind, as one, on the device of the logits, not waited for; nothing if
    there is none. Indices [n] in the flat logits, an id as often as it was listed, and values
    [n]."""
    found = [change for change in changes if len(change.ids)]
    if found:
        lens = [len(change.ids) for change in found]
        starts = np.array([change.row for change in found]) * logits.shape[-1]
        index = np.concatenate([change.ids for change in found]) + np.repeat(starts, lens)
        values = [change.values for change in found]
        is_listed = isinstance(values[0], Sequence)  # a value for each id
        flat = np.concatenate(values) if is_listed else np.repeat(values, lens)
        parts = index.astype(np.int64, copy=False), flat.astype(np.float32)
        yield to_tensor(parts[0], logits.device), to_tensor(parts[1], logits.device)
