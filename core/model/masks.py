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
    rows = [row for row, draw in enumerate(draws) if draw.mask is not None]
    if not rows:
        return logits
    size = logits.shape[-1]
    bits = np.stack([_unpacked(draw.mask, size) for draw in draws if draw.mask is not None])
    index = torch.tensor(rows, device=logits.device)
    is_out = torch.from_numpy(bits == 0).to(logits.device)
    return logits.index_copy(0, index, logits[index].masked_fill(is_out, -torch.inf))


def _unpacked(mask: Ints, size: int) -> np.ndarray:
    """[size] the bits of a mask; those past its end are 0."""
    count = min(size, 32 * len(mask))
    bits = np.zeros(size, np.uint8)
    bits[:count] = np.unpackbits(mask.view(np.uint8), count=count, bitorder="little")
    return bits
