"""Products with a fixed matrix for processors that multiply tiles (`amx`): compiled loops.

Every number of rows is split into three of bfloat16, its thirds. The numbers of published matrices
are bfloat16 or float16 and need one or two: they lie as such in panels of columns, in half the
memory of float32, or in as much. All products of thirds that matter are added up in float32, whose
precision the result has, whatever the type of the matrix. Every sum goes in the same order, however
many rows there are. Only for float32 on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .amx import BYTES, DEPTH, ROWS, THIRDS, add_product, begin, clear, end, read, split, write
from .vectors import WIDE, fetch, fetch_far, load, plus, single, store, wide

LANES = 64  # columns of a panel: four tiles
TILES = LANES // ROWS
MOST = 2  # thirds of a matrix's number
_LINE = BYTES // 2  # words that a cache fetches at a time
_TILE = ROWS * DEPTH  # words of a third of a tile
_PART = THIRDS * _TILE  # words of a tile of rows
_MOST_BYTES = 5 << 18  # of the thirds of rows that a panel is read for
_LEAST_ROWS, _MOST_ROWS = 64, 256
_SOON, _LATER = 1, 4  # steps: how far ahead panels go into the nearest cache, the second further on
_APART = 4 * LANES  # bytes between rows of sums
SIGNATURE = "void(int64, float32[:, ::1], uint16[::1], float32[:, ::1], boolean, int64, int64)"
_compiled = njit(error_model="numpy", nogil=True)


def multiply(num, x, panels, out, is_added, first, last):
    """As `panels.multiply`, of panels [panels, steps, tiles, num, 16, 16, 2]: tiles of `num` thirds
    each, in pairs of what is 16 rows apart."""
    (rows, depth), numbers = x.shape, x.reshape(-1)
    width, written = out.shape[1], out.reshape(-1)
    steps = (depth + DEPTH - 1) // DEPTH
    most = _MOST_BYTES // (2 * DEPTH * THIRDS * steps) // (2 * ROWS) * (2 * ROWS)
    most = min(max(most, _LEAST_ROWS), _MOST_ROWS)
    tiles = (min(rows, most) + ROWS - 1) // ROWS
    words = np.empty(tiles * steps * _PART + BYTES, np.uint16)
    sums = np.empty(tiles * ROWS * LANES + BYTES, np.float32)
    packed, total = _aligned(words.ctypes.data) // 2, _aligned(sums.ctypes.data) // 4
    begin()
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack(numbers[start * depth :], used, depth, steps, words, packed)
        for panel in range(first, last):
            at = panel * steps * TILES * num * _TILE
            _meet(num, words, packed, steps, used, panels, at, sums, total)
            _unpack(sums, total, written, width, start, used, panel * LANES, is_added)
    end()


@_compiled
def _aligned(address):
    """Bytes from an address to the next row of a tile."""
    return -address % BYTES


@_compiled
def _pack(x, used, depth, steps, words, packed):
    """Thirds of rows, filled up with zeros: [tiles, steps, thirds, 16, depth of a step]."""
    rest, whole = np.zeros(DEPTH, np.float32), depth // DEPTH
    for row in range((used + ROWS - 1) // ROWS * ROWS):
        to = packed + row // ROWS * steps * _PART + row % ROWS * DEPTH
        rest[:] = 0
        if row < used:
            rest[: depth - whole * DEPTH] = x[row * depth + whole * DEPTH : (row + 1) * depth]
        for step in range(steps):
            if row < used and step < whole:
                split(x, row * depth + step * DEPTH, words, to + step * _PART, _TILE)
            else:
                split(rest, 0, words, to + step * _PART, _TILE)


@_compiled
def _meet(num, words, packed, steps, used, panels, at, sums, total):
    """A panel and tiles of rows: two of them meet two of the panel; the last one, if there is one
    left, all four."""
    tiles, apart, half = (used + ROWS - 1) // ROWS, steps * _PART, TILES // 2 * num * _TILE
    for pair in range(tiles // 2):
        row, to = packed + 2 * pair * apart, total + 2 * pair * ROWS * LANES
        _meet_half(num, words, row, row + apart, steps, panels, at)
        _keep_half(sums, to)
        _meet_half(num, words, row, row + apart, steps, panels, at + half)
        _keep_half(sums, to + LANES // 2)
    if tiles % 2:
        row = tiles - 1
        _meet_whole(num, words, packed + row * apart, steps, panels, at)
        _keep_whole(sums, total + row * ROWS * LANES)


@_compiled
def _meet_half(num, words, upper, lower, steps, panels, at):
    """Two tiles of rows and two of a panel."""
    step_size, lines = TILES * num * _TILE, _share(num, TILES // 2)
    later = _LATER * step_size
    _clear()
    for step in range(steps):
        first, second = upper + step * _PART, lower + step * _PART
        left = at + step * step_size
        right, ahead = left + num * _TILE, left + _SOON * step_size
        _take_panel(panels, left, right)
        _take_rows(words, first + 2 * _TILE, second + 2 * _TILE)
        _add_four()
        ahead = _fetch(panels, ahead, later, lines)
        _take_rows(words, first + _TILE, second + _TILE)
        _add_four()
        ahead = _fetch(panels, ahead, later, lines)
        _take_rows(words, first, second)
        _add_four()
        ahead = _fetch(panels, ahead, later, lines)
        if num > 1:
            _take_panel(panels, left + _TILE, right + _TILE)
            _add_four()
            ahead = _fetch(panels, ahead, later, lines)
            _take_rows(words, first + _TILE, second + _TILE)
            _add_four()
            _fetch(panels, ahead, later, lines)


@_compiled
def _meet_whole(num, words, row, steps, panels, at):
    """A tile of rows and a whole panel."""
    step_size, lines = TILES * num * _TILE, _share(num, TILES)
    later = _LATER * step_size
    _clear()
    for step in range(steps):
        start, here = row + step * _PART, at + step * step_size
        ahead = here + _SOON * step_size
        read(4, words, start, BYTES)
        read(5, words, start + _TILE, BYTES)
        read(6, words, start + 2 * _TILE, BYTES)
        _add_third(panels, here, num)
        ahead = _fetch(panels, ahead, later, lines)
        _add_second(panels, here, num)
        ahead = _fetch(panels, ahead, later, lines)
        _add_first(panels, here, num)
        ahead = _fetch(panels, ahead, later, lines)
        if num > 1:
            _add_first(panels, here + _TILE, num)
            ahead = _fetch(panels, ahead, later, lines)
            _add_second(panels, here + _TILE, num)
            _fetch(panels, ahead, later, lines)


@_compiled
def _share(num, tiles):
    """Lines of a step that are fetched after each of its products of thirds."""
    num_products = THIRDS if num == 1 else THIRDS + 2
    return (tiles * num * ROWS + num_products - 1) // num_products


@_compiled
def _fetch(panels, at, later, lines):
    """From one place on what comes soon, from so far behind it what comes later. Products wait for
    lines that are fetched all at once."""
    for line in range(lines):
        fetch(panels, at + line * _LINE)
        fetch_far(panels, at + later + line * _LINE)
    return at + lines * _LINE


@_compiled
def _take_rows(words, first, second):
    read(4, words, first, BYTES)
    read(5, words, second, BYTES)


@_compiled
def _take_panel(panels, left, right):
    read(6, panels, left, BYTES)
    read(7, panels, right, BYTES)


@_compiled
def _add_four():
    add_product(0, 4, 6)
    add_product(1, 4, 7)
    add_product(2, 5, 6)
    add_product(3, 5, 7)


def _adding(third):
    left = 4 + third

    @_compiled
    def add(panels, at, num):
        """Four tiles of a panel and a third of rows."""
        read(7, panels, at, BYTES)
        add_product(0, left, 7)
        read(7, panels, at + num * _TILE, BYTES)
        add_product(1, left, 7)
        read(7, panels, at + 2 * num * _TILE, BYTES)
        add_product(2, left, 7)
        read(7, panels, at + 3 * num * _TILE, BYTES)
        add_product(3, left, 7)

    return add


_add_first, _add_second, _add_third = (_adding(third) for third in range(THIRDS))


@_compiled
def _clear():
    clear(0)
    clear(1)
    clear(2)
    clear(3)


@_compiled
def _keep_half(sums, to):
    below = to + ROWS * LANES
    write(0, sums, to, _APART)
    write(1, sums, to + ROWS, _APART)
    write(2, sums, below, _APART)
    write(3, sums, below + ROWS, _APART)


@_compiled
def _keep_whole(sums, to):
    write(0, sums, to, _APART)
    write(1, sums, to + ROWS, _APART)
    write(2, sums, to + 2 * ROWS, _APART)
    write(3, sums, to + 3 * ROWS, _APART)


@_compiled
def _unpack(sums, total, out, width, start, used, column, is_added):
    """Sums [rows, lanes] into a flat out, as far as a panel's columns are there."""
    num = min(LANES, width - column)
    for i in range(used):
        at, place = total + i * LANES, (start + i) * width + column
        done = 0
        while done + WIDE <= num:
            x = load(sums, at + done, wide())
            store(out, place + done, plus(load(out, place + done, x), x) if is_added else x)
            done += WIDE
        for j in range(done, num):
            x = load(sums, at + j, single())
            store(out, place + j, plus(load(out, place + j, x), x) if is_added else x)
