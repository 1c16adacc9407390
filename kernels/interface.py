"""Attention over cached tokens. Knows slots and tensors; nothing of models, batches or calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # processes that only compile loops do without torch
    from torch import Tensor

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Past:
    """Which slots each of S sequences reads: `table[rows[s], : starts[s] + lens[s]]`, the last
    `lens[s]` of which are its new tokens' own. New tokens follow one another, by sequence.
    Sequences that read the same slot at a position read the same slots at all before it.

    changed: [K, 3] row, start and end of what else of the table changed since the step before;
      None: all of it may have.
    """

    table: Ints
    rows: Ints
    starts: Ints
    lens: Ints
    changed: Ints | None = None


def table_index(spans: Ints) -> tuple[Ints, Ints]:
    """Rows and columns of all entries in spans [K, 3] of a slot table: row, start and end."""
    lens = spans[:, 2] - spans[:, 1]
    columns = within_groups(lens) + np.repeat(spans[:, 1], lens)
    return np.repeat(spans[:, 0], lens), columns.astype(np.int32, copy=False)


def own_spans(
    rows: Ints, starts: Ints, lens: Ints, is_whole: npt.NDArray[np.bool_] | bool = False
) -> Ints:
    """Spans [S, 3], as in `table_index`, of the new tokens of S sequences (see `Past`). is_whole:
    of all that a sequence reads."""
    found: Ints = np.stack([rows, np.where(is_whole, 0, starts), starts + lens], 1)
    return found


def within_groups(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The position of each item within its group, for groups of so many items [G] that follow one
    another."""
    firsts = np.cumsum(counts, dtype=np.int64) - counts
    found: npt.NDArray[np.int64] = np.arange(counts.sum()) - np.repeat(firsts, counts)
    return found


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


class StepShape(NamedTuple):
    """What a recorded step has room for: so many new tokens, of at most as many sequences.
    has_roots: prefixes that sequences share. has_extends: several new tokens of a sequence."""

    num_tokens: int
    has_roots: bool = False
    has_extends: bool = False


class Static(Protocol):
    """Plans steps of one shape, by `num_numbers` int32 at fixed addresses."""

    @property
    def num_numbers(self) -> int:
        """How many numbers a plan has."""

    def items(self, past: Past) -> Any:
        """The work items of a step; `has_roots` of it says whether sequences share any. None where
        there is no room for them."""

    def write(self, items: Any, numbers: Ints) -> None:
        """Write a step into `numbers`, which are zeros. Without roots in it, a step may be written
        for a shape that has no room for these. Called before each replay."""

    def plan(self, numbers: Tensor) -> Any:
        """The plan that reads these numbers [num_numbers] of the device."""


@runtime_checkable
class StaticAttention(Attention, Protocol):
    """Attention whose steps can be recorded once and repeated (CUDA graphs)."""

    def static(self, shape: StepShape, window: int | None = None) -> Static | None:
        """Plans of a shape for the layers of a window; None where it cannot be recorded."""

    def reserve(self, num_rows: int, num_columns: int) -> None:
        """Allocate what steps over slot tables of up to this shape need."""

    def update(self, past: Past) -> bool:
        """Bring the changes of the slot table to the device; once before each recorded step.
        Returns whether memory moved, so that all steps must be recorded again."""

    def forget(self) -> None:
        """Assume nothing of the slot table on the device: a step failed."""


@runtime_checkable
class Narrowing(Attention, Protocol):
    """Attention that can skip tokens whose result is not needed."""

    def narrowed(self, plan: Any, wanted: npt.NDArray[Any]) -> Any:
        """A plan that gives the tokens wanted [rows] the same bits as the whole plan; other tokens
        may get anything."""
