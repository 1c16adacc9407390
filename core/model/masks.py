"""What constraints allow: packed bits for each row, applied to the logits of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .batch import Draw, Ints


def masked(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """The logits [N, vocabulary] themselves if no draw has a mask, else a copy in which what the
    masks do not allow is -inf."""
    found = [(row, draw.mask) for row, draw in enumerate(draws) if draw.mask is not None]
    if not found:
        return logits
    rows, masks = zip(*found, strict=True)
    bits = torch.from_numpy(_unpacked(masks, logits.shape[-1])).to(logits.device)
    addends = 1 - bits.float().reciprocal_()  # 0 or -inf
    if len(rows) == len(draws):
        return logits + addends
    index = torch.tensor(rows, device=logits.device)
    return logits.index_copy(0, index, addends.add_(logits.index_select(0, index)))


def _unpacked(masks: Sequence[Ints], size: int) -> np.ndarray:
    """[masks, size] of bits; those past a mask's end are 0."""
    words = np.zeros((len(masks), -(-size // 32)), np.int32)
    for row, mask in zip(words, masks, strict=True):
        row[: len(mask)] = mask[: len(row)]
    return np.unpackbits(words.view(np.uint8), axis=-1, count=size, bitorder="little")
