"""Attention over cached tokens. Knows slots and tensors; nothing of models, batches or calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Past:
    """Which slots each of S sequences reads: `table[rows[s], : starts[s] + lens[s]]`, the last
    `lens[s]` of which are its new tokens' own. New tokens follow one another, by sequence."""

    table: Ints
    rows: Ints
    starts: Ints
    lens: Ints


class Attention(Protocol):
    """Causal attention of new tokens over slots."""

    def plan(self, past: Past, window: int | None = None) -> Any:
        """Prepare one step for all layers of one window: each token sees the last `window` tokens
        up to itself (a sliding window), or all if it is None."""

    def attend(
        self, q: Tensor, kv: Tensor, plan: Any, scale: float, softcap: float | None = None
    ) -> Tensor:
        """Attend with q [tokens, heads, dim] over kv [2, kv_heads, slots, dim], in which the new
        tokens' keys and values are already written. Scores are scaled by `scale` and, with a
        softcap, bent to softcap * tanh(score / softcap). Returns a new [tokens, heads, dim]."""
