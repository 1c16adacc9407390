"""Where the loops for single tokens (`singles`) keep what they compute: places in memory. Needs
numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from ..jit.spots import HALF
from ..jit.vectors import NARROW, WIDE

LANES = WIDE
BLOCK = 64  # keys of a block
ROOM = BLOCK + BLOCK // 2  # below, those that are left make one block
ROWS = 4  # keys that meet two heads at a time
SIZE = 4  # bytes of a number, and of a slot's
_inlined = njit(error_model="numpy", nogil=True, forceinline=True)


class Room(NamedTuple):
    """Where what is kept of a group's heads begins: parts of two heads' scores; scores of a block
    [heads, room]; sums [heads, lanes]; queries [heads, filled dim]; what they mixed of values so
    far [heads, dim]; the peaks of their scores [heads]; and what was mixed is worth yet [heads]."""

    parts: int
    scores: int
    sums: int
    queries: int
    mixed: int
    peaks: int
    worths: int
    end: int


@_inlined
def room_at(at, group, dim):
    """Room from an address on."""
    even = (group + group % 2) * SIZE
    scores = at + 2 * ROOM // ROWS * HALF * SIZE
    sums = scores + even * ROOM
    queries = sums + even * LANES
    mixed = queries + even * filled_dim(dim)
    peaks = mixed + even * dim
    worths = peaks + even
    return Room(at, scores, sums, queries, mixed, peaks, worths, worths + even)


@_inlined
def filled_dim(dim):
    """Numbers of a query and those it is filled up with, to whole vectors."""
    if dim >= HALF:
        return (dim + HALF - 1) // HALF * HALF
    return (dim + NARROW - 1) // NARROW * NARROW if dim >= NARROW else dim
