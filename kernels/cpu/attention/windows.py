"""Sliding windows: each token sees the last `window` tokens up to itself. Knows positions only.

What no new token of a step sees is left out of its `Past`; what some of them see and others do not
is hidden by a mask, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...interface import Past

BLOCK = 128  # new tokens that are computed under one mask


class Block(NamedTuple):
    """New tokens first:end of one sequence, and the keys start:stop of its past that they see."""

    first: int
    end: int
    start: int
    stop: int


def is_reached(past: Past, window: int) -> bool:
    """Whether some token of the step is too far back for another to see it."""
    return bool((past.starts + past.lens).max() > window)


def shifted(past: Past, window: int) -> Past:
    """The same step with a new table, in which every sequence begins with the first token
    that one of its new tokens sees."""
    ends = past.starts + past.lens
    lows = np.maximum(past.starts - window + 1, 0)
    columns = lows[:, None] + np.arange((ends - lows).max())
    table = past.table[past.rows[:, None], np.minimum(columns, ends[:, None] - 1)]
    rows = np.arange(len(ends), dtype=np.int32)
    return Past(table, rows, past.starts - lows, past.lens)


def blocks(start: int, length: int, window: int) -> Iterator[Block]:
    """Split `length` new tokens after `start` others into blocks."""
    for first in range(0, length, BLOCK):
        end = min(first + BLOCK, length)
        yield Block(first, end, max(start + first - window + 1, 0), start + end)


def mask(num_new: int, num_keys: int, window: int) -> Tensor:
    """[num_new, num_keys] added to scores: 0 or -inf, for new tokens that are the last keys."""
    seen = torch.ones(num_new, num_keys, dtype=torch.bool).tril_(num_keys - num_new)
    seen.triu_(num_keys - num_new - window + 1)
    return torch.zeros(num_new, num_keys).masked_fill_(~seen, -torch.inf)
