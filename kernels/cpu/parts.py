"""The parts that a step's attention on a CPU is cut into: which queries read which keys, how."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..interface import Attention, Ints

if TYPE_CHECKING:  # as in `kernels`: the loops of `digit_tiles` need a number of this module
    from torch import Tensor

Indices: TypeAlias = npt.NDArray[Any]
Tokens: TypeAlias = "slice | Tensor | None"  # which tokens of the batch; None: all, in order
LONG = 33  # new tokens from which a sequence is read by the loop for many, whatever its group


class Bend(NamedTuple):
    """What becomes of a product of query and key before the softmax, see `Attention.attend`."""

    scale: float
    softcap: float | None

    def in_powers(self) -> tuple[np.float32, np.float32]:
        """Both for scores that are powers of two; no softcap is 0."""
        share = 1 / math.log(2)
        return np.float32(self.scale * share), np.float32((self.softcap or 0) * share)


class Into(NamedTuple):
    """Where a step's attention is put: out [tokens, heads, dim], and total [tokens, heads], the
    log-sum-exp of the scores behind it."""

    out: Tensor
    total: Tensor

    @classmethod
    def like(cls, q: Tensor) -> Into:
        """For queries [tokens, heads, dim]."""
        return cls(q.new_empty(q.shape), q.new_empty(q.shape[:2]))

    def arrays(self) -> tuple[Indices, Indices]:
        """The same memory."""
        return self.out.numpy(), self.total.numpy()


@dataclass(frozen=True, slots=True)
class Keys:
    """The adjacent slots start:start + length, or any: `index` names rows of the pool seen as
    [2 * kv_heads * slots, dim], ordered [2, kv_heads, length]."""

    start: int
    length: int
    index: Tensor | None


@dataclass(frozen=True, slots=True)
class LongPart:
    """Queries that have all keys in common. is_causal: the keys are the queries' own tokens, of
    which each sees those up to itself. mask: [queries, keys], 0 or -inf. Else every query sees
    every key."""

    tokens: Tokens
    keys: Keys
    is_causal: bool = False
    mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class ShortPart:
    """S sequences of L new tokens each, over n keys each, padded.

    tokens: the S * L tokens in the batch, the last of a shorter sequence repeated.
    index: rows of the pool seen as [2 * kv_heads * slots, dim], ordered [2, S, kv_heads, n].
    mask: [S, 1, L, 1, n], 0 or -inf; None if nothing is hidden.
    """

    tokens: Tokens
    num_sequences: int
    index: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class TokenPart:
    """Single new tokens of T sequences, each over the keys firsts:ends of its row in the table, in
    whatever slots.

    tokens: [T] these in the batch. reads: [T] keys of a token and of those before it.
    """

    tokens: Indices
    table: Ints
    rows: Ints
    firsts: Ints
    ends: Ints
    reads: Indices


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """New tokens of S sequences, each over the keys firsts:ends of its row in the table, in
    whatever slots, as far as these are not behind itself, and the last `window` of them if any.

    tokens: these in the batch, those of sequence s being tokens[bounds[s]:bounds[s + 1]]. starts:
    positions of each sequence's first one. num_scores: about how many scores a head has. is_rest:
    they are what is wanted of sequences of LONG tokens or more, and are read as these are.
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


CopiedPart: TypeAlias = ShortPart | LongPart
InPlacePart: TypeAlias = TokenPart | ChunkPart


@dataclass(frozen=True, slots=True)
class CopiedPlan:
    """own: the parts in which every token reads itself; runs: those that are merged into them."""

    own: tuple[CopiedPart, ...]
    runs: tuple[LongPart, ...]


@dataclass(frozen=True, slots=True)
class InPlacePlan:
    """The same for parts that compiled loops compute."""

    own: tuple[InPlacePart, ...]
    runs: tuple[ChunkPart, ...]


@runtime_checkable
class Narrowing(Attention, Protocol):
    """Attention that can leave out what is not wanted."""

    def narrowed(self, plan: Any, wanted: Indices) -> Any:
        """A plan that gives the tokens wanted [rows] what the whole one gives, to the last bit;
        others may get anything."""


def least(attention: Attention, plan: Any, wanted: Tensor | None) -> Any:
    """The plan, or a narrowed one where only some rows are wanted and the attention can do so."""
    if wanted is None or not isinstance(attention, Narrowing):
        return plan
    return attention.narrowed(plan, wanted.numpy())


def narrowed(plan: InPlacePlan, wanted: Indices) -> InPlacePlan:
    """As `Narrowing.narrowed`: of long sequences that share no run the last tokens alone are left,
    where no other is wanted, or none."""
    is_wanted = np.zeros(1 + max(int(part.tokens.max()) for part in plan.own), bool)
    is_wanted[wanted] = True
    for run in plan.runs:
        is_wanted[run.tokens] = True
    own: list[InPlacePart] = []
    for part in plan.own:
        own += _left(part, is_wanted) if isinstance(part, ChunkPart) else [part]
    return InPlacePlan(tuple(own), plan.runs)


def _left(part: ChunkPart, is_wanted: Indices) -> list[ChunkPart]:
    lens, lasts = np.diff(part.bounds), part.tokens[part.bounds[1:] - 1]
    counts = np.add.reduceat(is_wanted[part.tokens], part.bounds[:-1], dtype=np.int64)
    is_less = (lens >= LONG) & (counts == is_wanted[lasts])
    if not is_less.any():
        return [part]
    spans = [slice(*span) for span in itertools.pairwise(part.bounds.tolist())]
    whole, single = np.flatnonzero(~is_less), np.flatnonzero(is_less & (counts == 1))
    parts = [_of(part, whole, [part.tokens[spans[s]] for s in whole])] if len(whole) else []
    if len(single):
        rest = _of(part, single, [lasts[s : s + 1] for s in single])
        starts = rest.ends - 1
        parts.append(replace(rest, starts=starts, is_rest=True))
    return parts


def _of(part: ChunkPart, sequences: Indices, tokens: list[Indices]) -> ChunkPart:
    """Some sequences of a part, and some tokens of each."""
    lens = np.array([len(each) for each in tokens])
    firsts, ends = part.firsts[sequences], part.ends[sequences]
    return replace(
        part,
        tokens=np.concatenate(tokens),
        rows=part.rows[sequences],
        firsts=firsts,
        starts=part.starts[sequences],
        ends=ends,
        bounds=np.concatenate(([0], np.cumsum(lens))),
        num_scores=int((lens * (ends - firsts)).sum()),
    )
