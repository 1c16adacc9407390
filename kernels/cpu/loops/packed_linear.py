"""Linear layers over packed weights, in panels of columns: compiled loops.

A block of a panel, 256 numbers deep, stays in the first cache while all tiles of rows are
multiplied by it; meanwhile the next block is prefetched. Tiles are as high as registers allow, and
of about the same height, see `microkernels`. Every sum goes in the order of its numbers, block by
block, however many rows there are. Only for float32 rows on a CPU; needs numba.
"""

from __future__ import annotations

import numpy as np

from ..jit.caches import second_cache_size
from ..jit.callees import callee
from ..jit.vectors import REGISTERS, fetch_far, fused, load, narrow, plus, single, store, zeros
from .microkernels import CHUNK, Shape, microkernel

LANES = min(REGISTERS // 8, 32)  # columns of a panel
# Tiles by their heights: the sums, one row of a panel and one number fit into registers. Few rows
# take several panels, because the next product has to wait for the sum before it; with AVX-512 that
# is still sooner than memory gives a panel. One stream is slower (16 rows with AVX-512: 83 instead
# of 105 GFLOP/s), but for so few rows that memory gives no more.
if LANES == 32:
    _SHAPES = {n: Shape(n, 1, 1 if n < 3 else 4) for n in (1, 2, 4, 6, 8, 12)}
    _OF_MANY = 0
else:  # few rows wait for memory; of many only the first finds a block far away
    _SHAPES = {1: Shape(1, 4, 1, near=32), 2: Shape(2, 2, 1, near=32)}
    _SHAPES |= {n: Shape(n, 1, 2, near=32) for n in (3, 4, 5, 6)}
    _OF_MANY = 6  # from the kind of a tile among few rows to the kind among many
_HIGHEST, _MAX_WIDTH = max(_SHAPES), max(shape.width for shape in _SHAPES.values())
_HEIGHTS = np.array([min(h for h in _SHAPES if h >= n) for n in range(_HIGHEST + 1)])
_WIDTHS = np.array([_SHAPES[height].width for height in _HEIGHTS])
_DEPTH = 256  # numbers of a column in a block
_LEAST_ROWS, _MOST_ROWS = 48, 384  # that are multiplied by a panel while it is near
_PACKED = min(max(second_cache_size() // 8, 1 << 16), 1 << 18)  # their numbers: half that cache
_MANY = 2 * _HIGHEST  # rows above which a block is made float32 once for all of them
SIGNATURE = "void(float32[:, ::1], float32[::1], float32[:, ::1], boolean, int64, int64)"
BF16_SIGNATURE = "void(float32[:, ::1], uint16[::1], float32[:, ::1], boolean, int64, int64)"
_SHAPES |= {n + _OF_MANY: Shape(n, 1, 2) for n in (4, 5, 6) if _OF_MANY}
_row = zeros(LANES)


@callee
def tile_height(left):
    """Rows of the next tile, where so many are left; the last tile is padded."""
    num = (left + _HIGHEST - 1) // _HIGHEST
    return _HEIGHTS[(left + num - 1) // num]


@callee
def filled_row(depth):
    """The numbers of a row, padded to whole chunks."""
    return (depth + CHUNK - 1) // CHUNK * CHUNK


@callee
def _pack(x, depth, used, packed):
    """packed: [tiles, chunks, rows of a tile, CHUNK]."""
    row, whole = 0, depth // CHUNK * CHUNK
    while row < used:
        height = tile_height(used - row)
        for i in range(height):
            at, to = min(row + i, used - 1) * depth, row * filled_row(depth) + i * CHUNK
            for d in range(0, whole, CHUNK):
                store(packed, to + d * height, load(x, at + d, narrow()))
            for d in range(whole, depth):
                store(packed, to + whole * height + d - whole, load(x, at + d, single()))
        row += height


@callee
def _widen(weights, at, size, block):
    for d in range(0, size * LANES, LANES):
        store(block, d, load(weights, at + d, _row()))


@callee
def _unpack(sums, used, of_out, column):
    """Sums [rows, lanes] into a flat out, as far as a panel's columns are there."""
    out, start, width, is_added = of_out
    num = min(LANES, width - column)
    for i in range(used):
        at, to = i * LANES, (start + i) * width + column
        if num == LANES:
            x = load(sums, at, _row())
            store(out, to, plus(load(out, to, x), x) if is_added else x)
            continue
        for j in range(num):
            x = load(sums, at + j, single())
            store(out, to + j, plus(load(out, to + j, x), x) if is_added else x)


def product_loop(pack, product=fused):
    """The loop over panels, with a function that packs rows and a product of two vectors that is
    added to a third, see `microkernel`."""
    add_tile = microkernel(_SHAPES, LANES, product)

    @callee
    def multiply_all(x, depth, weights, out, is_added, first, last):
        """As `multiply`. depth: float32 numbers of a packed row, and of a column of the matrix."""
        (rows, width), numbers = x.shape, x.reshape(-1)
        most = min(max(_PACKED // max(depth, 1), _LEAST_ROWS), _MOST_ROWS)
        num = (rows + most - 1) // most
        most = (rows + num - 1) // max(num, 1) + _HIGHEST  # and space for a tile that is padded
        packed = np.empty(most * (depth + CHUNK), np.float32)
        sums = np.empty(most * LANES * _MAX_WIDTH, np.float32)
        block = np.empty(_DEPTH * LANES, np.float32)
        for i in range(num):
            start, end = rows * i // num, rows * (i + 1) // num
            pack(numbers[start * width :], width, end - start, packed)
            of_out = out.reshape(-1), start, out.shape[1], is_added
            multiply_rows((packed, end - start), depth, weights, first, last, block, sums, of_out)

    @callee
    def multiply_rows(of_rows, depth, weights, first, last, block, sums, of_out):
        """The same for packed rows; block and sums are buffers. Panels are taken in groups; the
        last group repeats some if too few are left, or one panel several times if there are too few
        in all."""
        used = of_rows[1]
        num = _WIDTHS[tile_height(used)]
        step, stride = (num, depth * LANES) if last - first >= num else (1, 0)
        stride_of_sums = used * LANES + _HIGHEST * LANES
        for panel in range(first, last, step):
            group = min(panel, last - step)
            for begin in range(0, depth, _DEPTH):
                size = min(_DEPTH, depth - begin)
                at = (group * depth + begin) * LANES
                of_sums = sums, stride_of_sums, of_out, group * LANES, begin + size == depth
                if weights.itemsize < block.itemsize and used > _MANY:
                    _widen(weights, at, size, block)
                    add_up(of_rows, depth, begin, size, (block, 0, 0), (weights, at), of_sums)
                else:
                    of_weights = weights, at, stride
                    add_up(of_rows, depth, begin, size, of_weights, (weights, at), of_sums)
            for i in range(panel - group, step):
                _unpack(sums[i * stride_of_sums :], used, of_out, (group + i) * LANES)

    @callee
    def add_up(of_rows, depth, begin, size, of_weights, of_matrix, of_sums):
        """Add the products of one block, whose panels are `stride` numbers from one another; each
        tile prefetches a part of the next block, or behind the last block its rows of the result.
        """
        (packed, used), (weights, at, stride), (matrix, ahead) = of_rows, of_weights, of_matrix
        sums, sums_stride, (out, start_row, width, _), column, is_last = of_sums
        row, ahead, of_many = 0, ahead + size * LANES, _OF_MANY if used > _MANY else 0
        tiles = (used + _HIGHEST - 1) // _HIGHEST
        step = 2 * ((LANES + 2 * tiles - 1) // (2 * tiles))  # even, for several streams
        while row < used:
            height = tile_height(used - row)
            for i in range(min(height, used - row) if is_last else 0):
                fetch_far(out, (start_row + row + i) * width + column)
            start = row * filled_row(depth) + begin * height
            add_tile(
                height + of_many, packed, start, weights, at, stride, size, matrix, ahead, step,
                sums, row * LANES, sums_stride, begin == 0,
            )  # fmt: skip
            row, ahead = row + height, ahead + step * size

    return multiply_all


_multiply = product_loop(_pack)


def multiply(x, weights, out, is_added, first, last):
    """Columns of panels first:last of out [rows, width]: x [rows, depth] times the matrix, plus
    their old values if is_added. weights: [panels * depth * lanes], the last panel padded, in
    float32 or as the bits of bfloat16."""
    _multiply(x, x.shape[1], weights, out, is_added, first, last)
