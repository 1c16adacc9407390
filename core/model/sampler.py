"""Draws tokens from logits, a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .batch import Draw, Longs


def sample(logits: Tensor, draws: Sequence[Draw]) -> Longs:
    """Draw one token for each row of logits [N, vocabulary]; -1 where a row is not finite."""
    tokens = logits.argmax(-1)
    is_finite = torch.isfinite(logits.sum(-1))
    drawn: Longs = torch.where(is_finite, tokens, -1).numpy(force=True)
    return drawn
