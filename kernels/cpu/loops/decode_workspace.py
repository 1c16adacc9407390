"""The workspace of `decode_attention`: addresses of its intermediate results. Needs numba."""

from __future__ import annotations

from typing import NamedTuple

from ..jit.callees import inlined_callee
from ..jit.vector_pointers import HALF
from ..jit.vectors import NARROW, WIDE

LANES = WIDE
BLOCK = 64  # keys of a block
MAX_BLOCK = BLOCK + BLOCK // 2  # remaining keys below this make one block
ROWS = 4  # keys scored against two heads at a time
SIZE = 4  # bytes of a number, and of a slot's


class Workspace(NamedTuple):
    """Addresses of the intermediate results of one group of heads: partial sums of two heads'
    scores; scores of a block [heads, MAX_BLOCK]; row_sum [heads, lanes]; queries [heads, padded
    dim]; acc [heads, dim], the weighted values so far; row_max [heads]; and rescale [heads], the
    factor for earlier results."""

    partial_sums: int
    scores: int
    row_sum: int
    queries: int
    acc: int
    row_max: int
    rescale: int
    end: int


@inlined_callee
def workspace_at(at, group, dim):
    """The workspace from an address on."""
    even = (group + group % 2) * SIZE
    scores = at + 2 * MAX_BLOCK // ROWS * HALF * SIZE
    row_sum = scores + even * MAX_BLOCK
    queries = row_sum + even * LANES
    acc = queries + even * filled_dim(dim)
    row_max = acc + even * dim
    rescale = row_max + even
    return Workspace(at, scores, row_sum, queries, acc, row_max, rescale, rescale + even)


@inlined_callee
def filled_dim(dim):
    """The dim of a query, padded to whole vectors."""
    if dim >= HALF:
        return (dim + HALF - 1) // HALF * HALF
    return (dim + NARROW - 1) // NARROW * NARROW if dim >= NARROW else dim
