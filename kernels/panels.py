"""Products with a fixed matrix that lies in panels of columns: compiled loops.

Tiles of rows meet a panel block by block, so that a block stays in the nearest cache while all
tiles of a step meet it; meanwhile the next one is fetched. For the few rows of a step that is what
takes the time: the matrix is read as fast as memory gives it. Every sum goes in the order of its
numbers, block by block, however many rows there are. Only for float32 on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .vectors import WIDE, fetch, fetch_far, load, plus, plus_product_at, single, store, wide

LANES = WIDE  # columns of a panel
_DEPTH = 256  # numbers of a column in a block
_TALL, _LOW = 8, 4  # rows of a tile
_MOST_ROWS = 256  # that a panel is read for
_NEAR = 16 * LANES  # how far ahead numbers come from the second cache
_LINE = 16  # numbers that a cache fetches at a time
SIGNATURE = "void(float32[:, ::1], float32[::1], float32[:, ::1], boolean, int64, int64)"
HALVED_SIGNATURE = "void(float32[:, ::1], uint16[::1], float32[:, ::1], boolean, int64, int64)"
_compiled = njit(error_model="numpy", nogil=True)


def multiply(x, panels, out, is_added, first, last):
    """Columns of panels first:last of out [rows, width]: x [rows, depth] times the matrix, or that
    added to what they are. panels: [panels * depth * lanes], the last one filled up, in float32 or
    as the bits of bfloat16."""
    (rows, depth), numbers = x.shape, x.reshape(-1)
    width, written = out.shape[1], out.reshape(-1)
    most = max(min(_MOST_ROWS, (rows + _TALL - 1) // _TALL * _TALL), 1)
    packed, sums = np.empty(most * depth, np.float32), np.empty(most * LANES, np.float32)
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack(numbers[start * depth :], depth, used, packed)
        for panel in range(first, last):
            sums[:] = 0
            for begin in range(0, depth, _DEPTH):
                size = min(_DEPTH, depth - begin)
                _meet(packed, depth, begin, size, used, panels, panel * depth + begin, sums)
            _unpack(sums, written, width, start, used, panel * LANES, is_added)


@_compiled
def _height(left):
    """Rows of the next tile, where so many are left; the last tile is filled up."""
    return _TALL if left > _LOW else _LOW


@_compiled
def _pack(x, depth, used, packed):
    """packed: [tiles, depth, rows of a tile]."""
    row = 0
    while row < used:
        height = _height(used - row)
        for i in range(height):
            start, at = min(row + i, used - 1) * depth, row * depth + i
            if height == _TALL:
                _spread(x, start, depth, packed, at, _TALL)
            else:
                _spread(x, start, depth, packed, at, _LOW)
        row += height


@_compiled
def _spread(x, start, depth, packed, at, height):
    for d in range(depth):
        store(packed, at + d * height, load(x, start + d, single()))


@_compiled
def _meet(packed, depth, begin, size, used, panels, at, sums):
    """Add what a block from row `at` of the panels on gives; each tile fetches a share of the next
    one."""
    row, ahead = 0, (at + size) * LANES
    step = size * LANES // ((used + _TALL - 1) // _TALL) // _LINE * _LINE
    while row < used:
        height = _height(used - row)
        start, to = row * depth + begin * height, row * LANES
        if height == _TALL:
            _meet_tall(packed, start, size, panels, at * LANES, sums, to, ahead, step)
        else:
            _meet_low(packed, start, size, panels, at * LANES, sums, to, ahead, step)
        row, ahead = row + height, ahead + step


@_compiled
def _meet_tall(packed, start, size, panels, at, sums, to, ahead, share):
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = wide()  # of this block: long sums lose less so
    half, step = share // 2, share // size // 2
    for d in range(size):
        x, i = load(panels, at + d * LANES, s0), start + d * _TALL
        _fetch(panels, at + d * LANES, ahead + d * step, half)
        s0 = plus_product_at(s0, packed, i, x)
        s1 = plus_product_at(s1, packed, i + 1, x)
        s2 = plus_product_at(s2, packed, i + 2, x)
        s3 = plus_product_at(s3, packed, i + 3, x)
        s4 = plus_product_at(s4, packed, i + 4, x)
        s5 = plus_product_at(s5, packed, i + 5, x)
        s6 = plus_product_at(s6, packed, i + 6, x)
        s7 = plus_product_at(s7, packed, i + 7, x)
    store(sums, to, plus(load(sums, to, s0), s0))
    store(sums, to + LANES, plus(load(sums, to + LANES, s1), s1))
    store(sums, to + 2 * LANES, plus(load(sums, to + 2 * LANES, s2), s2))
    store(sums, to + 3 * LANES, plus(load(sums, to + 3 * LANES, s3), s3))
    store(sums, to + 4 * LANES, plus(load(sums, to + 4 * LANES, s4), s4))
    store(sums, to + 5 * LANES, plus(load(sums, to + 5 * LANES, s5), s5))
    store(sums, to + 6 * LANES, plus(load(sums, to + 6 * LANES, s6), s6))
    store(sums, to + 7 * LANES, plus(load(sums, to + 7 * LANES, s7), s7))


@_compiled
def _meet_low(packed, start, size, panels, at, sums, to, ahead, share):
    s0 = s1 = s2 = s3 = wide()  # of this block: long sums lose less so
    half, step = share // 2, share // size // 2
    for d in range(size):
        x, i = load(panels, at + d * LANES, s0), start + d * _LOW
        _fetch(panels, at + d * LANES, ahead + d * step, half)
        s0 = plus_product_at(s0, packed, i, x)
        s1 = plus_product_at(s1, packed, i + 1, x)
        s2 = plus_product_at(s2, packed, i + 2, x)
        s3 = plus_product_at(s3, packed, i + 3, x)
    store(sums, to, plus(load(sums, to, s0), s0))
    store(sums, to + LANES, plus(load(sums, to + LANES, s1), s1))
    store(sums, to + 2 * LANES, plus(load(sums, to + 2 * LANES, s2), s2))
    store(sums, to + 3 * LANES, plus(load(sums, to + 3 * LANES, s3), s3))


@_compiled
def _fetch(panels, at, ahead, half):
    """The next block into the second cache, what comes soon into the first."""
    fetch_far(panels, ahead)
    fetch_far(panels, ahead + half)
    fetch(panels, at + _NEAR)
    if LANES > _LINE:
        fetch(panels, at + _NEAR + _LINE)


@_compiled
def _unpack(sums, out, width, start, used, column, is_added):
    """Sums [rows, lanes] into a flat out, as far as a panel's columns are there."""
    num = min(LANES, width - column)
    for i in range(used):
        at, place = i * LANES, (start + i) * width + column
        if num == LANES:
            x = load(sums, at, wide())
            store(out, place, plus(load(out, place, x), x) if is_added else x)
            continue
        for j in range(num):
            x = load(sums, at + j, single())
            store(out, place + j, plus(load(out, place + j, x), x) if is_added else x)
