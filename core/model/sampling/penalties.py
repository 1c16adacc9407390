"""What calls change in their logits: penalties, biases and bans, for all rows at once.

A change is a list of places in the matrix of logits, seen as one long row. It costs what the
listed tokens cost; the vocabulary is copied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...api.batch import Draw
from ..inputs import to_tensor


class _Change(NamedTuple):
    """The same number, or one for each, at token ids of one row."""

    row: int
    ids: Sequence[int] | np.ndarray[Any, Any]
    values: float | Sequence[float]


class _Listed(NamedTuple):
    """places: [n] in the flat logits, an id as often as it was listed. values: [n]."""

    places: Tensor
    values: Tensor


def changed(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """The logits [N, vocabulary] themselves if no draw changes any, else a changed copy.

    The repetition penalty comes first, on what the model said; then presence and frequency
    penalties, biases, bans.
    """
    rows = [(row, draw) for row, draw in enumerate(draws) if _is_changing(draw)]
    if not rows:
        return logits
    flat = logits.flatten().clone()
    for index, values in _places(_repetitions(rows), logits):
        now = flat[index]
        flat[index] = torch.where(now > 0, now / values, now * values)
    for index, values in _places(_presences(rows), logits):
        flat[index] = flat[index] - values  # once for an id, however often it is listed
    for index, values in _places(_frequencies(rows), logits):
        flat.index_add_(0, index, values, alpha=-1)
    for index, values in _places(_biases(rows), logits):
        flat.index_add_(0, index, values)
    for index, values in _places((_Change(r, d.banned, -np.inf) for r, d in rows), logits):
        flat[index] = values
    return flat.view(logits.shape)


def _is_changing(draw: Draw) -> bool:
    return bool(draw.generated is not None or draw.logit_bias or draw.banned)


def _repetitions(rows: Iterable[tuple[int, Draw]]) -> Iterable[_Change]:
    for row, draw in rows:
        if draw.repetition_penalty != 1.0:
            for ids in (draw.prompt, draw.generated):
                if ids is not None:
                    yield _Change(row, ids, draw.repetition_penalty)


def _presences(rows: Iterable[tuple[int, Draw]]) -> Iterable[_Change]:
    for row, draw in rows:
        if draw.presence_penalty and draw.generated is not None:
            yield _Change(row, draw.generated, draw.presence_penalty)


def _frequencies(rows: Iterable[tuple[int, Draw]]) -> Iterable[_Change]:
    for row, draw in rows:
        if draw.frequency_penalty and draw.generated is not None:
            yield _Change(row, draw.generated, draw.frequency_penalty)


def _biases(rows: Iterable[tuple[int, Draw]]) -> Iterable[_Change]:
    for row, draw in rows:
        if draw.logit_bias:
            ids, values = zip(*draw.logit_bias, strict=True)
            yield _Change(row, ids, values)


def _places(changes: Iterable[_Change], logits: Tensor) -> Iterable[_Listed]:
    """All changes as one, on the device of the logits, not waited for; nothing if there is none."""
    found = [change for change in changes if len(change.ids)]
    if found:
        width = logits.shape[-1]
        ids = [np.asarray(change.ids, np.int64) + change.row * width for change in found]
        values = [np.broadcast_to(np.asarray(c.values, np.float32), len(c.ids)) for c in found]
        joined = (to_tensor(np.concatenate(part), logits.device) for part in (ids, values))
        yield _Listed(*joined)
