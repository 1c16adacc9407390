"""Attention over cached tokens. Knows slots and tensors; nothing of models, batches or calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # processes that only compile loops do without torch
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
        softcap, become softcap * tanh(score / softcap). Returns a new [tokens, heads, dim]."""


class Static(Protocol):
    """Plans decode steps of up to so many sequences, with numbers at fixed addresses: `num_numbers`
    int32, and lists of slots elsewhere."""

    @property
    def num_numbers(self) -> int:
        """How many numbers a plan has beside its lists of slots."""

    def items(self, past: Past, window: int | None) -> Any:
        """The work items of a step; `has_roots` of it says whether sequences share any."""

    def write(self, items: Any, numbers: Ints, at: int) -> Ints | None:
        """Write a step into `numbers`, which are zeros, and return its lists of slots, which the
        caller stores from index `at` on; None where there is no room for what is shared. Unused
        sequences read slot 0."""

    def plan(self, numbers: Tensor, slots: Tensor) -> Any:
        """The plan that reads these: numbers [num_numbers], and all lists of slots."""


@runtime_checkable
class StaticAttention(Attention, Protocol):
    """Attention whose steps can be recorded once and repeated (CUDA graphs)."""

    def static(self, size: int, has_roots: bool) -> Static:
        """For up to `size` sequences. has_roots: with room for roots that they share."""


@runtime_checkable
class Narrowing(Attention, Protocol):
    """Attention that can skip tokens whose result is not needed."""

    def narrowed(self, plan: Any, wanted: npt.NDArray[Any]) -> Any:
        """A plan that gives the tokens wanted [rows] the same bits as the whole plan; other tokens
        may get anything."""
