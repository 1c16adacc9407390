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

    def plan(self, past: Past) -> Any:
        """Prepare one step; the plan is read by every layer's `attend`."""

    def attend(self, q: Tensor, kv: Tensor, plan: Any) -> Tensor:
        """Attend with q [tokens, heads, dim] over kv [2, kv_heads, slots, dim], in which the new
        tokens' keys and values are already written. Returns a new [tokens, heads, dim]."""
