"""Products of bfloat16 rows with a fixed matrix of such numbers, for processors that multiply tiles
(`amx`): compiled loops.

The matrix lies in panels of columns, and is read as fast as memory gives it. Sums are float32 and
are rounded once. Every sum goes in the same order, however many rows there are. Needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .amx import BYTES, DEPTH, ROWS, add_product, begin, copy_row, end, read
from .attention_lanes import few
from .fours import add_four, clear_sums, fetch_lines, keep_sums, take_panel, take_rows
from .thirds import TILE, aligned
from .vectors import fetch, load, plus, single, store, store_rounded

TILES = 2  # of columns: what is read one behind another lies so, or caches would keep little of it
LANES = TILES * ROWS
_MOST_BYTES = 1 << 20  # of rows that a panel is read for: they stay in the second cache
_LEAST_ROWS, _MOST_ROWS = 32, 256
_STEP = TILES * TILE  # words of a step of a panel
_SOON, _FURTHER = 2 * _STEP, 6 * _STEP  # words ahead: into the nearest cache; behind, the second
_AHEAD = 2 * DEPTH  # numbers of a row that are fetched before they are packed
_SQUARE = ROWS * ROWS
SIGNATURE = "void(uint16[:, ::1], uint16[::1], uint16[:, ::1], boolean, int64, int64)"
_compiled = njit(error_model="numpy", nogil=True, forceinline=True)


def multiply(x, panels, out, is_added, first, last):
    """Columns of panels first:last of out [rows, width]: x [rows, depth] times the matrix, or that
    added to what they are; all are the bits of bfloat16. panels: [panels, steps, tiles, 16, 16, 2],
    the numbers of a column in pairs; what is too much in the last ones is zero."""
    (rows, depth), numbers = x.shape, x.reshape(-1)
    width, written = out.shape[1], out.reshape(-1)
    steps = (depth + DEPTH - 1) // DEPTH
    most = _MOST_BYTES // (2 * DEPTH * steps) // (2 * ROWS) * (2 * ROWS)
    most = min(max(most, _LEAST_ROWS), _MOST_ROWS)
    tiles = (min(rows, most) + ROWS - 1) // ROWS
    words = np.empty(tiles * steps * TILE + BYTES, np.uint16)  # and room for DEPTH behind them
    sums = np.empty(4 * _SQUARE + BYTES, np.float32)
    packed, total = aligned(words.ctypes.data) // 2, aligned(sums.ctypes.data) // 4
    begin(max(min(rows, ROWS), 1))
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack(numbers[start * depth :], used, depth, steps, words, packed)
        for panel in range(first, last):
            at = panel * steps * _STEP
            for row in range(0, used, 2 * ROWS):
                upper, place = packed + row * steps * DEPTH, (start + row) * width
                of_out = written, place, width, panel * LANES, is_added
                if used - row <= ROWS:
                    _meet_one(words, upper, steps, panels, at)
                    keep_sums(sums, total)
                    _put(sums, total, used - row, of_out)
                else:
                    further = 0 if row else _FURTHER  # other rows have brought it near
                    _meet_two(words, upper, steps, panels, at, further)
                    keep_sums(sums, total)
                    _put(sums, total, min(2 * ROWS, used - row), of_out)
    end()


@_compiled
def _pack(x, used, depth, steps, words, to):
    """Rows, filled up with zeros: two tiles each [steps, 2, 16, depth of a step], a last one that
    is alone [steps, 16, depth of a step]; in this order."""
    for first in range(0, used, 2 * ROWS):
        num_rows = ROWS if used - first <= ROWS else 2 * ROWS
        for step in range(steps):
            start = step * DEPTH
            for row in range(first, first + num_rows):
                at = row * depth + start
                if row < used and start + DEPTH <= depth:
                    fetch(x, at + _AHEAD)
                    copy_row(x, at, words, to)
                else:
                    for j in range(DEPTH):
                        is_there = row < used and start + j < depth
                        words[to + j] = x[at + j] if is_there else 0
                to += DEPTH


@_compiled
def _meet_two(words, rows, steps, panels, at, further):
    """Two tiles of rows and a panel, all steps. further: as `later` of `fetch_lines`. A sum a step
    keeps vectors' units awake, as `thirds` says."""
    clear_sums()
    awake = load(panels, at, few())
    for step in range(steps):
        awake = plus(awake, awake)
        here, row = at + step * _STEP, rows + step * 2 * TILE
        take_panel(panels, here, here + TILE)
        take_rows(words, row, row + TILE)
        add_four()
        fetch_lines(panels, here + _SOON, further, TILES * ROWS)
    store(words, len(words) - DEPTH, awake)


@_compiled
def _meet_one(words, row, steps, panels, at):
    """A tile of rows and a panel, all steps. Only the last tile has 16 rows where there are
    fewer."""
    clear_sums()
    awake = load(panels, at, few())
    for step in range(steps):
        awake = plus(awake, awake)
        here = at + step * _STEP
        read(4, words, row + step * TILE, BYTES)
        read(7, panels, here, BYTES)
        add_product(0, 4, 7)
        fetch_lines(panels, here + _SOON, _FURTHER, ROWS)
        read(7, panels, here + TILE, BYTES)
        add_product(1, 4, 7)
        fetch_lines(panels, here + _SOON + TILE, _FURTHER, ROWS)
    store(words, len(words) - DEPTH, awake)


@_compiled
def _put(sums, total, num_rows, of_out):
    """Rows of two tiles, or of one, by two of columns into the flat out, as far as its columns are
    there."""
    out, to, width, column, is_added = of_out
    num = min(LANES, width - column)
    to += column
    for row in range(num_rows):
        at = total + row // ROWS * 2 * _SQUARE + row % ROWS * ROWS
        if num == LANES:
            x, y = load(sums, at, few()), load(sums, at + _SQUARE, few())
            store_rounded(out, to, plus(load(out, to, x), x) if is_added else x)
            store_rounded(out, to + ROWS, plus(load(out, to + ROWS, y), y) if is_added else y)
        else:
            for j in range(num):
                z = load(sums, at + j // ROWS * _SQUARE + j % ROWS, single())
                store_rounded(out, to + j, plus(load(out, to + j, z), z) if is_added else z)
        to += width
