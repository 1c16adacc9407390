"""Products with a fixed matrix for processors that multiply tiles (`amx`): compiled loops.

Every number of rows is split into three of bfloat16, its thirds. The numbers of published matrices
are bfloat16 or float16 and need one or two: they lie as such in panels of columns, in half the
memory of float32, or in as much. All products of thirds that matter are added up in float32, whose
precision the result has, whatever the type of the matrix. Where a model computes in bfloat16, each
number of rows is rounded to one third instead: a third of the products. Every sum goes in the same
order, however many rows there are. Only for float32 rows on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .amx import BYTES, DEPTH, ROWS, THIRDS, add_product, begin, end, read, round_row, split, write
from .attention_lanes import few
from .fours import add_four, clear_sums, fetch_lines, keep_sums, take_panel, take_rows, take_sums
from .vectors import fetch, load, plus, single, store

LANES = 64  # columns of a panel: four tiles
TILES = LANES // ROWS
HALF = 4 * ROWS * ROWS  # sums of two tiles of rows and two of a panel
MOST = 2  # thirds of a matrix's number
TILE = ROWS * DEPTH  # words of a third of a tile
_MOST_BYTES = 5 << 18  # of the thirds of rows that a panel is read for
_LEAST_ROWS, _MOST_ROWS = 64, 128
FEW = 64  # rows up to which a panel is read only once
PANELS, _STEPS = 8, 6  # of panels: for so many rows these stay in the nearest caches, and sums
_SOON, _LATER = 1, 4  # steps: how far ahead panels go into the nearest cache, the second further on
_AHEAD = 2 * DEPTH  # numbers of a row that are fetched before they are split
SIGNATURE = (
    "void(int64, int64, float32[:, ::1], uint16[::1], float32[:, ::1], boolean, int64, int64)"
)
_compiled = njit(error_model="numpy", nogil=True, forceinline=True)


def multiply(num, row_parts, x, panels, out, is_added, first, last):
    """As `panels.multiply`, of panels [panels, steps, tiles, num, 16, 16, 2]: tiles of `num` thirds
    each, in pairs of what is 16 rows apart. row_parts: thirds of a row's number: THIRDS, or one."""
    (rows, depth), numbers = x.shape, x.reshape(-1)
    width, written = out.shape[1], out.reshape(-1)
    steps = (depth + DEPTH - 1) // DEPTH
    most, is_once = rows_at_once(steps, row_parts), rows <= FEW
    tiles, span = (min(rows, most) + ROWS - 1) // ROWS, 1 if is_once else PANELS
    words = np.empty(tiles * steps * row_parts * TILE + BYTES, np.uint16)  # and DEPTH behind them
    sums = np.empty(span * tiles * ROWS * LANES + BYTES, np.float32)
    packed, total = aligned(words.ctypes.data) // 2, aligned(sums.ctypes.data) // 4
    begin(max(min(rows, ROWS), 1))
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack(numbers[start * depth :], used, depth, steps, row_parts, words, packed)
        of_rows = words, packed, used, steps, row_parts, is_once
        for panel in range(first, last, span):
            of_panels, of_out = (panel, min(span, last - panel)), (written, start * width, width)
            add_up(num, of_rows, panels, of_panels, sums, total, (*of_out, is_added))
            unpack(sums, total, used, of_panels, (*of_out, is_added))
    end()


@_compiled
def rows_at_once(steps, row_parts):
    """Rows of such a depth, of so many thirds each, that a panel is read for."""
    most = _MOST_BYTES // (2 * DEPTH * row_parts * steps) // (2 * ROWS) * (2 * ROWS)
    return min(max(most, _LEAST_ROWS), _MOST_ROWS)


@_compiled
def add_up(num, of_rows, panels, of_panels, sums, total, of_out):
    """Sums of packed rows and some panels, from place `total` of the sums on: [panels, num_sums].
    Those that go into the out as they are, in the place of what was, are there already.

    of_rows: their thirds, as `_pack` puts them, from a place on, how many they are, steps, thirds
    of a number, and whether each panel is read only once. of_out: the flat out, the place of the
    first row, its width, and whether sums are added to what was.
    """
    words, packed, used, steps, row_parts, is_once = of_rows
    of_tiles = num, row_parts, words, packed
    part = steps if is_once else min(_STEPS * THIRDS // row_parts, steps)
    for step in range(0, steps, part):
        of_steps = step, min(part, steps - step), steps
        _meet(of_tiles, of_steps, used, panels, of_panels, sums, total, of_out)


@_compiled
def aligned(address):
    """Bytes from an address to the next row of a tile."""
    return -address % BYTES


@_compiled
def _pack(x, used, depth, steps, row_parts, words, packed):
    """Thirds of rows, filled up with zeros: [tiles, steps, thirds, 16, depth of a step], in this
    order; what is read next comes near."""
    rest, whole = np.zeros(DEPTH, np.float32), depth // DEPTH
    for first in range(0, used, ROWS):
        num = min(ROWS, used - first)
        for step in range(steps):
            at = first * depth + step * DEPTH
            to = packed + (first // ROWS * steps + step) * row_parts * TILE
            for _ in range(num):
                if step < whole:
                    fetch(x, at + _AHEAD)
                    fetch(x, at + _AHEAD + ROWS)
                    _put(x, at, row_parts, words, to)
                else:
                    rest[: depth - whole * DEPTH] = x[at : at + depth - whole * DEPTH]
                    _put(rest, 0, row_parts, words, to)
                at += depth
                to += DEPTH
            rest[:] = 0
            for _ in range(num, ROWS if used > ROWS else num):  # tiles have no more rows
                _put(rest, 0, row_parts, words, to)
                to += DEPTH


@_compiled
def _put(x, at, row_parts, words, to):
    """A step of a row, as so many thirds."""
    if row_parts == 1:
        round_row(x, at, words, to)
    else:
        split(x, at, words, to, TILE)


@_compiled
def _meet(of_tiles, of_steps, used, panels, of_panels, sums, total, of_out):
    """A few steps of some panels and tiles of rows: two of these meet two of a panel's; the last
    one, if there is one left, all four. After the last step sums that need no more than that go
    into the out."""
    (num, row_parts, words, packed), (panel, count) = of_tiles, of_panels
    (first, num_steps, steps), of_pair = of_steps, (num, row_parts, words)
    written, base, width, is_added = of_out
    tiles, step_size, size = (used + ROWS - 1) // ROWS, TILES * num * TILE, num_sums(used)
    half, at = TILES // 2 * num * TILE, (panel * steps + first) * step_size
    part = row_parts * TILE
    row, apart, later = packed + first * part, steps * part, _LATER * step_size
    for pair in range(tiles // 2):
        for i in range(count):
            left, column = at + i * steps * step_size, (panel + i) * LANES
            following = left + steps * step_size if i + 1 < count else at
            is_direct = _is_direct(pair, column, used, width, is_added)
            inner = total + i * size + pair * 2 * ROWS * LANES
            outer = base + pair * 2 * ROWS * width + column
            for there in (left + half, following):
                if first:
                    take_sums(sums, inner)
                else:
                    clear_sums()
                _meet_half(of_pair, row, row + apart, num_steps, panels, left, there, later)
                if is_direct and first + num_steps == steps:
                    _write_half(written, outer, width)
                else:
                    keep_sums(sums, inner)
                left += half
                inner += HALF
                outer += LANES // 2
        row += 2 * apart
        later = 0  # other rows have brought it near
    if tiles % 2:
        for i in range(count):
            left, to = at + i * steps * step_size, total + i * size + (tiles - 1) * ROWS * LANES
            if first:
                take_sums(sums, to)
            else:
                clear_sums()
            _meet_whole(of_pair, row, num_steps, panels, left)
            keep_sums(sums, to)


@_compiled
def num_sums(used):
    """Sums of so many rows and a panel."""
    return (used + ROWS - 1) // ROWS * ROWS * LANES


@_compiled
def _is_direct(pair, column, used, width, is_added):
    """Whether all numbers of two tiles of rows and a panel are wanted, in the place of what was."""
    return (pair + 1) * 2 * ROWS <= used and column + LANES <= width and not is_added


@_compiled
def _meet_half(of_pair, upper, lower, count, panels, at, there, later):
    """Two tiles of rows and two of a panel; there: those that come next. later: so many words
    behind what comes soon more is brought nearer; 0: it is not.

    Units of vectors sleep where only tiles are multiplied for long, and tiles are stored through
    these: each time 800 cycles would be lost. A sum a step, of which nothing is wanted, keeps them
    awake.
    """
    num, row_parts, words = of_pair
    step_size, lines = TILES * num * TILE, _share(num, row_parts, TILES // 2)
    awake = load(panels, at, few())
    for step in range(count):
        awake = plus(awake, awake)
        first, second = upper + step * row_parts * TILE, lower + step * row_parts * TILE
        left = at + step * step_size
        right, ahead = left + num * TILE, left + _SOON * step_size if step + 1 < count else there
        take_panel(panels, left, right)
        if row_parts > 1:
            take_rows(words, first + 2 * TILE, second + 2 * TILE)
            add_four()
            ahead = fetch_lines(panels, ahead, later, lines)
            take_rows(words, first + TILE, second + TILE)
            add_four()
            ahead = fetch_lines(panels, ahead, later, lines)
        take_rows(words, first, second)
        add_four()
        ahead = fetch_lines(panels, ahead, later, lines)
        if num > 1:
            take_panel(panels, left + TILE, right + TILE)
            add_four()
            ahead = fetch_lines(panels, ahead, later, lines)
            if row_parts > 1:
                take_rows(words, first + TILE, second + TILE)
                add_four()
                fetch_lines(panels, ahead, later, lines)
    store(words, len(words) - DEPTH, awake)


@_compiled
def _meet_whole(of_pair, row, count, panels, at):
    """A tile of rows and a whole panel; stays awake as `_meet_half`."""
    num, row_parts, words = of_pair
    step_size, size = TILES * num * TILE, num * TILE
    ahead, later = _SOON * step_size, _LATER * step_size
    awake = load(panels, at, few())
    for step in range(count):
        awake = plus(awake, awake)
        start, here = row + step * row_parts * TILE, at + step * step_size
        read(4, words, start, BYTES)
        if row_parts > 1:
            read(5, words, start + TILE, BYTES)
            read(6, words, start + 2 * TILE, BYTES)
        _add_to_first(num, row_parts, panels, here)
        fetch_lines(panels, here + ahead, later, num * ROWS)
        _add_to_second(num, row_parts, panels, here + size)
        fetch_lines(panels, here + size + ahead, later, num * ROWS)
        _add_to_third(num, row_parts, panels, here + 2 * size)
        fetch_lines(panels, here + 2 * size + ahead, later, num * ROWS)
        _add_to_fourth(num, row_parts, panels, here + 3 * size)
        fetch_lines(panels, here + 3 * size + ahead, later, num * ROWS)
    store(words, len(words) - DEPTH, awake)


@_compiled
def _share(num, row_parts, tiles):
    """Lines of a step that are fetched after each of its products of thirds."""
    num_products = num if row_parts == 1 else THIRDS if num == 1 else THIRDS + 2
    return (tiles * num * ROWS + num_products - 1) // num_products


def _adding_to(sums):
    @_compiled
    def add(num, row_parts, panels, at):
        """A tile of a panel, which is read once, and all thirds of rows."""
        read(7, panels, at, BYTES)
        if row_parts > 1:
            add_product(sums, 6, 7)
            add_product(sums, 5, 7)
        add_product(sums, 4, 7)
        if num > 1:
            read(7, panels, at + TILE, BYTES)
            add_product(sums, 4, 7)
            if row_parts > 1:
                add_product(sums, 5, 7)

    return add


_add_to_first, _add_to_second, _add_to_third, _add_to_fourth = (
    _adding_to(tile) for tile in range(TILES)
)


@_compiled
def _write_half(out, to, width):
    """[32, 32] of rows of such a width."""
    below, apart = to + ROWS * width, 4 * width
    write(0, out, to, apart)
    write(1, out, to + ROWS, apart)
    write(2, out, below, apart)
    write(3, out, below + ROWS, apart)


@_compiled
def sums_of(start, tile, tiles):
    """Where those of a tile of rows and a panel begin, of the panel's that begin at a place: two
    [16, 16] beside each other, and how far behind these two more."""
    if tile + 1 == tiles and tiles % 2:
        return start + tile * ROWS * LANES, 2 * ROWS * ROWS
    return start + tile // 2 * 2 * HALF + tile % 2 * 2 * ROWS * ROWS, HALF


@_compiled
def unpack(sums, total, used, of_panels, of_out):
    """Sums of which not all numbers are wanted, or which are added, into the flat out."""
    (written, base, width, is_added), (panel, count) = of_out, of_panels
    tiles = (used + ROWS - 1) // ROWS
    for i in range(count):
        column, start = (panel + i) * LANES, total + i * num_sums(used)
        num = min(LANES, width - column)
        for tile in range(tiles):
            if _is_direct(tile // 2, column, used, width, is_added):
                continue
            (at, right), beside = sums_of(start, tile, tiles), ROWS * ROWS
            to = base + tile * ROWS * width + column
            for _ in range(min(ROWS, used - tile * ROWS)):
                if num == LANES:
                    _put_sums(sums, at, written, to, is_added)
                    _put_sums(sums, at + beside, written, to + ROWS, is_added)
                    _put_sums(sums, at + right, written, to + 2 * ROWS, is_added)
                    _put_sums(sums, at + right + beside, written, to + 3 * ROWS, is_added)
                else:
                    for j in range(num):
                        place = at + j // (2 * ROWS) * right + j // ROWS % 2 * beside + j % ROWS
                        x = load(sums, place, single())
                        x = plus(load(written, to + j, x), x) if is_added else x
                        store(written, to + j, x)
                at += ROWS
                to += width


@_compiled
def _put_sums(sums, at, out, to, is_added):
    """A row of a tile."""
    x = load(sums, at, few())
    store(out, to, plus(load(out, to, x), x) if is_added else x)
