"""Linear layers on AMX by splitting float32 numbers into bfloat16 terms (bf16x3): compiled loops.

Every number of the rows is split into three bfloat16 terms. Weights of published models are
bfloat16 or float16 and need one or two terms; they are packed as such in panels of columns, in half
the memory of float32, or in as much. All products of terms that matter are summed in float32, so
the result has float32's precision, whatever the type of the weights. Where a model computes in
bfloat16, each number of the rows is rounded to one term instead: a third of the products. Every sum
goes in the same order, however many rows there are. In bfloat16, a step of 256 tokens takes 17 ms,
and 27 without AMX; attention saves 3.5 of these 10 (56M parameters, one thread). Only for float32
rows on a CPU; needs numba.
"""

from __future__ import annotations

import numpy as np

from ..jit.addresses import bare, hold
from ..jit.amx import (
    BYTES,
    DEPTH,
    ROWS,
    add_product,
    begin,
    clear,
    end,
    read,
    read_once,
    split,
    store_rounded,
    write,
)
from ..jit.attention_lanes import few
from ..jit.callees import inlined_callee
from ..jit.vectors import fetch, fetch_far, load, plus, single, store

LANES = 64  # columns of a panel: four tiles
SIDES = 2  # of a panel, which lie one after the other
TILES = LANES // SIDES // ROWS  # of a side
HALF = 4 * ROWS * ROWS  # sums of two tiles of rows and a side
MAX_TERMS = 2  # terms of a weight
TILE = ROWS * DEPTH  # words of one term of a tile
_LINE = BYTES // 2  # words that a cache fetches at a time
_MOST_BYTES = 5 << 18  # of the terms of rows that share one read of a panel
_LEAST_ROWS, _MOST_ROWS = 64, 256
_PART = 20  # steps of a side, of one term, that stay in the nearest cache
_SOON, _LATER = (
    1,
    4,
)  # steps ahead of which panels are prefetched into the first cache, and the second
_AHEAD = 2 * DEPTH  # numbers of a row prefetched before they are split
SIGNATURE = (
    "void(int64, int64, float32[:, ::1], uint16[::1], float32[:, ::1], boolean, int64, int64)"
)


def multiply(num, row_terms, x, weights, out, is_added, first, last):
    """As `packed_linear.multiply`, of weights [panels, sides, steps, tiles, num, 16, 16, 2]: tiles
    of `num` terms each, in pairs of what is 16 rows apart. row_terms: terms of a row's number:
    TERMS, or one."""
    (rows, depth), numbers = x.shape, x.reshape(-1)
    width, written = out.shape[1], out.reshape(-1)
    steps = (depth + DEPTH - 1) // DEPTH
    most = rows_at_once(steps, row_terms)
    tiles = (min(rows, most) + ROWS - 1) // ROWS
    words = np.empty(tiles * steps * row_terms * TILE + BYTES, np.uint16)  # and DEPTH behind them
    sums = np.empty(tiles * ROWS * LANES + BYTES, np.float32)
    packed, total = aligned(words.ctypes.data) // 2, aligned(sums.ctypes.data) // 4
    numbers, weights, written = bare(numbers), bare(weights), bare(written)
    of_words, of_sums = bare(words), bare(sums)
    begin(max(min(rows, ROWS), 1))
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack(numbers[start * depth :], used, depth, steps, row_terms, of_words, packed)
        of_rows = of_words, packed, used, steps, row_terms
        for panel in range(first, last):
            add_up(num, of_rows, weights, (panel, min(panel + 1, last - 1)), of_sums, total)
            of_out = written, start * width + panel * LANES, width, is_added
            unpack(of_sums, total, used, min(LANES, width - panel * LANES), of_out)
    end()
    hold((words, sums))


@inlined_callee
def rows_at_once(steps, row_terms):
    """How many rows of such a depth, with so many terms per number, share one read of a panel."""
    most = _MOST_BYTES // (2 * DEPTH * row_terms * steps) // (2 * ROWS) * (2 * ROWS)
    return min(max(most, _LEAST_ROWS), _MOST_ROWS)


@inlined_callee
def add_up(num, of_rows, weights, of_panel, sums, total):
    """Sums of packed rows and a panel, from index `total` of the sums on: as many as `num_sums`
    gives. Two tiles of rows are multiplied by a side of the panel at a time; an odd last tile by
    the whole panel.

    Some steps of a side stay in the nearest cache while all rows are multiplied by them; the next
    steps are prefetched meanwhile. of_rows: the rows' terms, as `_pack` lays them out, from an
    index on, the number of rows, steps, and terms of a number. of_panel: which panel, and which is
    needed next.
    """
    (words, packed, used, steps, row_terms), (panel, following) = of_rows, of_panel
    tiles, of_pair = (used + ROWS - 1) // ROWS, (num, row_terms, words)
    step_size, stride = TILES * num * TILE, steps * row_terms * TILE
    side_size, pairs = steps * step_size, tiles // 2
    start, num_parts = panel * SIDES * side_size, (steps * num + _PART - 1) // _PART
    part = (steps + num_parts - 1) // num_parts
    for side in range(SIDES if pairs else 0):
        for first in range(0, steps, part):
            count = min(part, steps - first)
            at = start + side * side_size + first * step_size
            soon = at + count * step_size
            if first + count == steps and side + 1 == SIDES:
                soon = following * SIDES * side_size
            lines = (TILES * num * ROWS + pairs - 1) // pairs
            for pair in range(pairs):
                row = packed + 2 * pair * stride + first * row_terms * TILE
                to = total + (SIDES * pair + side) * HALF
                if first:
                    _load_sums(sums, to)
                else:
                    _clear_sums()
                of_prefetch = soon + pair * lines * _LINE, lines
                _multiply_side(of_pair, row, row + stride, count, weights, at, of_prefetch)
                _store_sums(sums, to)
    if tiles % 2:
        _clear_sums()
        _multiply_whole(of_pair, packed + (tiles - 1) * stride, steps, weights, start, side_size)
        _store_sums(sums, total + (tiles - 1) * ROWS * LANES)


@inlined_callee
def aligned(address):
    """Bytes from an address to the next row of a tile."""
    return -address % BYTES


@inlined_callee
def _pack(x, used, depth, steps, row_terms, words, packed):
    """Terms of rows, padded with zeros: [tiles, steps, terms, 16, depth of a step], in this order;
    what is read next is prefetched."""
    rest, whole = np.zeros(DEPTH, np.float32), depth // DEPTH
    for first in range(0, used, ROWS):
        num = min(ROWS, used - first)
        for step in range(steps):
            at = first * depth + step * DEPTH
            to = packed + (first // ROWS * steps + step) * row_terms * TILE
            for _ in range(num):
                if step < whole:
                    fetch(x, at + _AHEAD)
                    fetch(x, at + _AHEAD + ROWS)
                    first_half, second_half = load(x, at, few()), load(x, at + ROWS, few())
                    store_terms(first_half, second_half, row_terms, words, to)
                else:
                    rest[: depth - whole * DEPTH] = x[at : at + depth - whole * DEPTH]
                    first_half, second_half = load(rest, 0, few()), load(rest, ROWS, few())
                    store_terms(first_half, second_half, row_terms, words, to)
                at += depth
                to += DEPTH
            for _ in range(num, ROWS if used > ROWS else num):  # tiles have no more rows
                store_terms(few(), few(), row_terms, words, to)
                to += DEPTH


@inlined_callee
def store_terms(first, second, row_terms, words, to):
    """Split two vectors, a step of a row, into so many terms."""
    if row_terms == 1:
        store_rounded(first, second, words, to)
    else:
        split(first, second, words, to, TILE)


@inlined_callee
def num_sums(used):
    """How many sums so many rows and a panel have."""
    return (used + ROWS - 1) // ROWS * ROWS * LANES


@inlined_callee
def _multiply_side(of_pair, upper, lower, count, weights, at, of_prefetch):
    """Two tiles of rows by some steps of a side. of_prefetch: an index to prefetch from, and the
    lines each step prefetches.

    The processor powers its vector units down where it multiplies only tiles for long. Tiles are
    stored through these units, and powering them up takes 800 cycles each time. One vector sum a
    step, whose result is not used, keeps them powered.
    """
    (num, row_terms, words), (soon, lines) = of_pair, of_prefetch
    row_size, size = row_terms * TILE, num * TILE
    awake = load(weights, at, few())
    for _ in range(count):
        awake = plus(awake, awake)
        _load_weight_tiles(weights, at, at + size)
        if row_terms > 1:
            _load_row_tiles(words, upper + 2 * TILE, lower + 2 * TILE)
            _multiply_2x2()
            _load_row_tiles(words, upper + TILE, lower + TILE)
            _multiply_2x2()
        _load_row_tiles(words, upper, lower)
        _multiply_2x2()
        if num > 1:
            _load_weight_tiles(weights, at + TILE, at + size + TILE)
            _multiply_2x2()
            if row_terms > 1:
                _load_row_tiles(words, upper + TILE, lower + TILE)
                _multiply_2x2()
        for line in range(lines):
            fetch_far(weights, soon + line * _LINE)
        soon += TILES * size
        at += TILES * size
        upper += row_size
        lower += row_size
    store(words, len(words) - DEPTH, awake)


@inlined_callee
def _multiply_whole(of_pair, row, count, weights, at, side_size):
    """A tile of rows by a whole panel, whose sides are of such a size; keeps vector units powered,
    as `_multiply_side`."""
    num, row_terms, words = of_pair
    size = num * TILE
    step_size = TILES * size
    ahead, later = _SOON * step_size, _LATER * step_size
    awake = load(weights, at, few())
    for step in range(count):
        awake = plus(awake, awake)
        start, here = row + step * row_terms * TILE, at + step * step_size
        other = here + side_size
        read(4, words, start, BYTES)
        if row_terms > 1:
            read(5, words, start + TILE, BYTES)
            read(6, words, start + 2 * TILE, BYTES)
        _add_to_first(num, row_terms, weights, here)
        _fetch_lines(weights, here + ahead, later, num * ROWS)
        _add_to_second(num, row_terms, weights, here + size)
        _fetch_lines(weights, here + size + ahead, later, num * ROWS)
        _add_to_third(num, row_terms, weights, other)
        _fetch_lines(weights, other + ahead, later, num * ROWS)
        _add_to_fourth(num, row_terms, weights, other + size)
        _fetch_lines(weights, other + size + ahead, later, num * ROWS)
    store(words, len(words) - DEPTH, awake)


def _adding_to(sums):
    @inlined_callee
    def add(num, row_terms, weights, at):
        """A tile of a panel, which is read once, by all terms of rows."""
        read(7, weights, at, BYTES)
        if row_terms > 1:
            add_product(sums, 6, 7)
            add_product(sums, 5, 7)
        add_product(sums, 4, 7)
        if num > 1:
            read(7, weights, at + TILE, BYTES)
            add_product(sums, 4, 7)
            if row_terms > 1:
                add_product(sums, 5, 7)

    return add


_add_to_first, _add_to_second, _add_to_third, _add_to_fourth = (
    _adding_to(tile) for tile in range(SIDES * TILES)
)


@inlined_callee
def sums_of(start, tile, tiles):
    """Where those of a tile of rows and a panel begin, of the panel's that begin at an index: two
    [16, 16] beside each other, and how far behind these two more."""
    if tile + 1 == tiles and tiles % 2:
        return start + tile * ROWS * LANES, 2 * ROWS * ROWS
    return start + tile // 2 * 2 * HALF + tile % 2 * 2 * ROWS * ROWS, HALF


@inlined_callee
def unpack(sums, total, used, num, of_out):
    """Write the sums of rows and a panel to the flat out, or add them to it: so many columns.
    of_out: the array, the index of the first number, the width of its rows, and whether sums are
    added."""
    (written, base, width, is_added), tiles = of_out, (used + ROWS - 1) // ROWS
    for tile in range(tiles):
        (at, right), beside = sums_of(total, tile, tiles), ROWS * ROWS
        to = base + tile * ROWS * width
        for _ in range(min(ROWS, used - tile * ROWS)):
            if num == LANES:
                _put_sums(sums, at, written, to, is_added)
                _put_sums(sums, at + beside, written, to + ROWS, is_added)
                _put_sums(sums, at + right, written, to + 2 * ROWS, is_added)
                _put_sums(sums, at + right + beside, written, to + 3 * ROWS, is_added)
            else:
                for j in range(num):
                    index = at + j // (2 * ROWS) * right + j // ROWS % 2 * beside + j % ROWS
                    x = load(sums, index, single())
                    x = plus(load(written, to + j, x), x) if is_added else x
                    store(written, to + j, x)
            at += ROWS
            to += width


@inlined_callee
def _put_sums(sums, at, out, to, is_added):
    """A row of a tile."""
    x = load(sums, at, few())
    store(out, to, plus(load(out, to, x), x) if is_added else x)


@inlined_callee
def _fetch_lines(weights, at, later, lines):
    """Prefetch so many lines from an index on into the first cache, and as many from `later` behind
    it into the second. Products wait where many lines are fetched at once."""
    for line in range(lines):
        fetch(weights, at + line * _LINE)
    for line in range(lines):
        fetch_far(weights, at + later + line * _LINE)


# The microkernel of 2x2 tiles: sums in tiles 0 to 3, two tiles of rows in 4 and 5, two of weights
# in 6 and 7.


@inlined_callee
def _load_row_tiles(words, first, second):
    """Load tiles of rows past the nearest cache, where panels stay."""
    read_once(4, words, first, BYTES)
    read_once(5, words, second, BYTES)


@inlined_callee
def _load_weight_tiles(weights, left, right):
    read(6, weights, left, BYTES)
    read(7, weights, right, BYTES)


@inlined_callee
def _multiply_2x2():
    add_product(0, 4, 6)
    add_product(1, 4, 7)
    add_product(2, 5, 6)
    add_product(3, 5, 7)


@inlined_callee
def _clear_sums():
    clear(0)
    clear(1)
    clear(2)
    clear(3)


@inlined_callee
def _load_sums(sums, to):
    read(0, sums, to, BYTES)
    read(1, sums, to + ROWS * ROWS, BYTES)
    read(2, sums, to + 2 * ROWS * ROWS, BYTES)
    read(3, sums, to + 3 * ROWS * ROWS, BYTES)


@inlined_callee
def _store_sums(sums, to):
    """[4, 16, 16]: two tiles of rows by two of weights, or one of rows by four."""
    write(0, sums, to, BYTES)
    write(1, sums, to + ROWS * ROWS, BYTES)
    write(2, sums, to + 2 * ROWS * ROWS, BYTES)
    write(3, sums, to + 3 * ROWS * ROWS, BYTES)
