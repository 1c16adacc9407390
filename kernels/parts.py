"""The parts that a step's attention on a CPU is cut into: which queries read which keys, how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt
from torch import Tensor

from . import Ints

Indices: TypeAlias = npt.NDArray[Any]
Tokens: TypeAlias = slice | Tensor | None  # which tokens of the batch; None: all, in order


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

    tokens: these in the batch. reads: [T] keys of a token and of those before it. longest: the
    most keys that one of them has.
    """

    tokens: Tokens
    table: Ints
    rows: Ints
    firsts: Ints
    ends: Ints
    reads: Indices
    longest: int


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """New tokens of S sequences, each over the keys firsts:ends of its row in the table, in
    whatever slots, as far as these are not behind itself, and the last `window` of them if any.

    tokens: these in the batch, those of sequence s being the part's bounds[s]:bounds[s + 1].
    starts: positions of each sequence's first one. num_scores: about how many scores a head has.
    """

    tokens: Tokens
    table: Ints
    rows: Ints
    firsts: Ints
    starts: Ints
    ends: Ints
    bounds: Indices
    window: int | None
    num_scores: int


OwnPart: TypeAlias = TokenPart | ChunkPart | ShortPart | LongPart


@dataclass(frozen=True, slots=True)
class Plan:
    """own: the parts in which every token reads itself; runs: those that are merged into them."""

    own: tuple[OwnPart, ...]
    runs: tuple[LongPart | ChunkPart, ...]
