"""Work items of a step's attention on a CPU: which queries read which keys, and how."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..interface import Ints

if TYPE_CHECKING:  # the loops of `int8_extend_attention` need a number of this module
    from torch import Tensor

Indices: TypeAlias = npt.NDArray[Any]
LONG = 33  # new tokens from which the long-sequence loop reads a sequence, whatever its group size


class ScoreMod(NamedTuple):
    """How a product of query and key becomes a score, see `Attention.attend`."""

    scale: float
    softcap: float | None

    def in_log2(self) -> tuple[np.float32, np.float32]:
        """Scale and softcap for scores to base 2, so that weights are powers of two; 0 for no
        softcap."""
        log2_e = 1 / math.log(2)
        return np.float32(self.scale * log2_e), np.float32((self.softcap or 0) * log2_e)


class AttentionOutput(NamedTuple):
    """Where attention is written: out [tokens, heads, dim], and lse [tokens, heads], the
    log-sum-exp of its scores."""

    out: Tensor
    lse: Tensor

    @classmethod
    def like(cls, q: Tensor) -> AttentionOutput:
        """For queries [tokens, heads, dim]."""
        return cls(q.new_empty(q.shape), q.new_empty(q.shape[:2]))

    def arrays(self) -> tuple[Indices, Indices]:
        """The same memory."""
        return self.out.numpy(), self.lse.numpy()


@dataclass(frozen=True, slots=True)
class DecodeItem:
    """One new token of each of T sequences, over the keys firsts:ends of its row in the table, in
    any slots.

    tokens: [T] their indices in the batch. reads: [T] running total of keys read.
    """

    tokens: Indices
    table: Ints
    rows: Ints
    firsts: Ints
    ends: Ints
    reads: Indices


@dataclass(frozen=True, slots=True)
class ExtendItem:
    """New tokens of S sequences, over the keys firsts:ends of each sequence's row in the table, in
    any slots. Causal; with a window each token sees the last `window` keys only.

    tokens: their indices in the batch; those of sequence s are tokens[bounds[s]:bounds[s + 1]].
    starts: position of each sequence's first one. num_scores: scores per head, about. is_rest: what
    `narrowed` left of sequences of LONG tokens or more; the loop for these reads them.
    """

    tokens: Indices
    table: Ints
    rows: Ints
    firsts: Ints
    starts: Ints
    ends: Ints
    bounds: Indices
    window: int | None
    num_scores: int
    is_rest: bool = False


InPlaceItem: TypeAlias = DecodeItem | ExtendItem


@dataclass(frozen=True, slots=True)
class InPlacePlan:
    """Items of a step. own: those in which each token reads itself; runs: shared keys, merged into
    these."""

    own: tuple[InPlaceItem, ...]
    runs: tuple[ExtendItem, ...]

    @property
    def is_decode(self) -> bool:
        """Whether each sequence has one new token, and no keys are shared."""
        return not self.runs and len(self.own) == 1 and isinstance(self.own[0], DecodeItem)


def narrowed(plan: InPlacePlan, wanted: Indices) -> InPlacePlan:
    """As `Narrowing.narrowed`: of long sequences that share no run the last tokens alone are left,
    where no other is wanted, or none. Saves 5 to 10 % of the time of 512 tokens after 1,024 to
    4,096 others in a model of 8 layers."""
    is_wanted = np.zeros(1 + max(int(item.tokens.max()) for item in plan.own), bool)
    is_wanted[wanted] = True
    for run in plan.runs:
        is_wanted[run.tokens] = True
    own: list[InPlaceItem] = []
    for item in plan.own:
        own += _left(item, is_wanted) if isinstance(item, ExtendItem) else [item]
    return InPlacePlan(tuple(own), plan.runs)


def _left(item: ExtendItem, is_wanted: Indices) -> list[ExtendItem]:
    lens, lasts = np.diff(item.bounds), item.tokens[item.bounds[1:] - 1]
    counts = np.add.reduceat(is_wanted[item.tokens], item.bounds[:-1], dtype=np.int64)
    is_less = (lens >= LONG) & (counts == is_wanted[lasts])
    if not is_less.any():
        return [item]
    spans = [slice(*span) for span in itertools.pairwise(item.bounds.tolist())]
    whole, single = np.flatnonzero(~is_less), np.flatnonzero(is_less & (counts == 1))
    items = [_of(item, whole, [item.tokens[spans[s]] for s in whole])] if len(whole) else []
    if len(single):
        rest = _of(item, single, [lasts[s : s + 1] for s in single])
        starts = rest.ends - 1
        items.append(replace(rest, starts=starts, is_rest=True))
    return items


def _of(item: ExtendItem, sequences: Indices, tokens: list[Indices]) -> ExtendItem:
    """Some sequences of an item, and some tokens of each."""
    lens = np.array([len(each) for each in tokens])
    firsts, ends = item.firsts[sequences], item.ends[sequences]
    return replace(
        item,
        tokens=np.concatenate(tokens),
        rows=item.rows[sequences],
        firsts=firsts,
        starts=item.starts[sequences],
        ends=ends,
        bounds=np.concatenate(([0], np.cumsum(lens))),
        num_scores=int((lens * (ends - firsts)).sum()),
    )
