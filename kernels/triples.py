"""Products with a fixed matrix for processors that multiply tiles (`amx`): compiled loops.

Every number is split into three of bfloat16, its thirds, those of the matrix while they are read:
no copy is kept, and what takes the time with a few rows, the reading, takes as long as ever. The
six products of thirds that matter give float32's precision, and take less time than float32's own
one. Every sum goes in the same order, however many rows there are. Only for float32 on a CPU; needs
numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .amx import BYTES, DEPTH, ROWS, THIRDS, add_product, begin, clear, end, read, split, write
from .vectors import WIDE, fetch_far, load, plus, single, store, wide

LANES = 64  # columns of a panel, in two halves of two tiles each
_HALF = LANES // 2
_LINE = 16  # numbers that a cache fetches at a time
_TILE = ROWS * DEPTH  # numbers in a tile
_STEP = DEPTH * _HALF  # numbers of a half that meet at a time
_PART = THIRDS * _TILE  # words of a tile's thirds
_SIDE = 2 * _PART  # words of the thirds of a step of a half
_NEAR = 4 * _SIDE  # words of two steps' thirds of both halves: the nearest cache holds them
_MOST_BYTES = 5 << 18  # of the thirds of rows that a panel is read for
_LEAST_ROWS, _MOST_ROWS = 64, 256
_AHEAD = 2 * _STEP  # how far ahead a panel is fetched
_APART = 4 * LANES  # bytes between rows of sums
SIGNATURE = "void(float32[:, ::1], float32[::1], float32[:, ::1], boolean, int64, int64)"
_compiled = njit(error_model="numpy", nogil=True)


def multiply(x, panels, out, is_added, first, last):
    """As `panels.multiply`, of panels [panels, halves, steps, tiles, 16, 2, 16]."""
    (rows, depth), numbers = x.shape, x.reshape(-1)
    width, written = out.shape[1], out.reshape(-1)
    steps = (depth + DEPTH - 1) // DEPTH
    most = _MOST_BYTES // (2 * DEPTH * THIRDS * steps) // (2 * ROWS) * (2 * ROWS)
    most = min(max(most, _LEAST_ROWS), _MOST_ROWS)
    tiles = (min(rows, most) + ROWS - 1) // ROWS
    words = np.empty(_NEAR + tiles * steps * _PART + BYTES, np.uint16)
    sums = np.empty(tiles * ROWS * LANES + BYTES, np.float32)
    near, total = _aligned(words.ctypes.data) // 2, _aligned(sums.ctypes.data) // 4
    packed = near + _NEAR
    begin()
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack(numbers[start * depth :], used, depth, steps, words, packed)
        for panel in range(first, last):
            at = 2 * panel * steps * _STEP
            _meet(words, packed, steps, used, near, panels, at, sums, total)
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


def _splitting(rows):
    @_compiled
    def split_rows(panels, at, words, to):
        """Thirds of some rows of a tile of a panel, of which later ones are fetched."""
        for row in range(rows):
            start = at + row * DEPTH
            fetch_far(panels, start + _AHEAD)
            fetch_far(panels, start + _AHEAD + _LINE)
            split(panels, start, words, to + row * DEPTH, _TILE)

    return split_rows


_split_tile, _split_rows = _splitting(ROWS), _splitting(ROWS // 2)


@_compiled
def _meet(words, packed, steps, used, near, panels, at, sums, total):
    """A panel and tiles of rows: two of them meet two of the panel; the last one, if there is one
    left, all four. It is split again for each, in which time they meet."""
    tiles, apart, half = (used + ROWS - 1) // ROWS, steps * _PART, steps * _STEP
    for pair in range(tiles // 2):
        row, to = packed + 2 * pair * apart, total + 2 * pair * ROWS * LANES
        _meet_half(words, row, row + apart, steps, near, panels, at)
        _keep_half(sums, to)
        _meet_half(words, row, row + apart, steps, near, panels, at + half)
        _keep_half(sums, to + _HALF)
    if tiles % 2:
        row, to = packed + (tiles - 1) * apart, total + (tiles - 1) * ROWS * LANES
        _meet_whole(words, row, steps, near, panels, at)
        _keep_whole(sums, to)


@_compiled
def _meet_half(words, upper, lower, steps, near, panels, at):
    """Two tiles of rows and half a panel: while a step's tiles meet, those of the next are
    split."""
    _clear()
    _split_tile(panels, at, words, near)
    _split_tile(panels, at + _TILE, words, near + _PART)
    for step in range(steps):
        first, second = upper + step * _PART, lower + step * _PART
        left, there = near + step % 2 * _SIDE, near + (step + 1) % 2 * _SIDE
        right, start = left + _PART, at + min(step + 1, steps - 1) * _STEP
        read(4, words, first, BYTES)
        read(5, words, second, BYTES)
        _take(words, left + 2 * _TILE, right + 2 * _TILE)
        _add_four()
        _split_rows(panels, start, words, there)
        _take(words, left, right)
        _add_four()
        _split_rows(panels, start + _TILE // 2, words, there + _TILE // 2)
        _take(words, left + _TILE, right + _TILE)
        _add_four()
        read(4, words, first + _TILE, BYTES)
        read(5, words, second + _TILE, BYTES)
        _add_four()
        _split_rows(panels, start + _TILE, words, there + _PART)
        _take(words, left, right)
        _add_four()
        _split_rows(panels, start + _TILE + _TILE // 2, words, there + _PART + _TILE // 2)
        read(4, words, first + 2 * _TILE, BYTES)
        read(5, words, second + 2 * _TILE, BYTES)
        _add_four()


@_compiled
def _meet_whole(words, row, steps, near, panels, at):
    """A tile of rows and a whole panel, likewise."""
    other = at + steps * _STEP
    _clear()
    _split_tile(panels, at, words, near)
    _split_tile(panels, at + _TILE, words, near + _PART)
    _split_tile(panels, other, words, near + 2 * _PART)
    _split_tile(panels, other + _TILE, words, near + 3 * _PART)
    for step in range(steps):
        here, there = near + step % 2 * 2 * _SIDE, near + (step + 1) % 2 * 2 * _SIDE
        following, start = min(step + 1, steps - 1) * _STEP, row + step * _PART
        read(4, words, start, BYTES)
        read(5, words, start + _TILE, BYTES)
        read(6, words, start + 2 * _TILE, BYTES)
        _split_tile(panels, at + following, words, there)
        _meet_first(words, here + 2 * _TILE)
        _split_tile(panels, at + following + _TILE, words, there + _PART)
        _meet_first(words, here)
        _meet_first(words, here + _TILE)
        _split_tile(panels, other + following, words, there + 2 * _PART)
        _meet_second(words, here + _TILE)
        _split_tile(panels, other + following + _TILE, words, there + 3 * _PART)
        _meet_second(words, here)
        _meet_third(words, here)


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
def _take(words, left, right):
    read(6, words, left, BYTES)
    read(7, words, right, BYTES)


@_compiled
def _add_four():
    add_product(0, 4, 6)
    add_product(1, 4, 7)
    add_product(2, 5, 6)
    add_product(3, 5, 7)


def _meeting(third):
    """Four tiles of a panel, one third of each, with a third of rows."""
    left = 4 + third

    @_compiled
    def meet(words, at):
        read(7, words, at, BYTES)
        add_product(0, left, 7)
        read(7, words, at + _PART, BYTES)
        add_product(1, left, 7)
        read(7, words, at + 2 * _PART, BYTES)
        add_product(2, left, 7)
        read(7, words, at + 3 * _PART, BYTES)
        add_product(3, left, 7)

    return meet


_meet_first, _meet_second, _meet_third = (_meeting(third) for third in range(THIRDS))


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
