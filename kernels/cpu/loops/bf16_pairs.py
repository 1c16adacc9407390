"""Linear layers over packed bfloat16 weights by products of pairs (`jit.pairs`): compiled loops.

Rows are rounded to bfloat16 in pairs, as the weights are packed; sums are float32. The loop is that
of `packed_linear`, over half as many numbers. Only for float32 rows on a CPU with AVX-512 BF16;
needs numba.
"""

from __future__ import annotations

import numpy as np

from ..jit.callees import callee
from ..jit.pairs import pair_product
from ..jit.vectors import load, single, store, zeros
from .microkernels import CHUNK
from .packed_linear import SIGNATURE as SIGNATURE
from .packed_linear import filled_row, product_loop, tile_height

_TWO_CHUNKS = 2 * CHUNK
_chunk = zeros(_TWO_CHUNKS)


@callee
def num_pairs(depth):
    """Pairs of a row; the last one may have one number and a zero."""
    return (depth + 1) // 2


@callee
def _pack(x, depth, used, packed):
    """packed: [tiles, chunks, rows of a tile, CHUNK] pairs."""
    words, filled = packed.view(np.uint16), filled_row(num_pairs(depth))
    row, whole = 0, depth // _TWO_CHUNKS * _TWO_CHUNKS
    while row < used:
        height = tile_height(used - row)
        for i in range(height):
            at, to = min(row + i, used - 1) * depth, 2 * row * filled + i * _TWO_CHUNKS
            for d in range(0, whole, _TWO_CHUNKS):
                store(words, to + d * height, load(x, at + d, _chunk()))
            rest = to + whole * height - whole
            for d in range(whole, depth):
                store(words, rest + d, load(x, at + d, single()))
            if depth % 2:
                words[rest + depth] = 0
        row += height


_multiply = product_loop(_pack, pair_product)


def multiply(x, weights, out, is_added, first, last):
    """As `packed_linear.multiply`. weights: [panels * pairs * lanes], each a pair of adjacent
    numbers of a column, as bits of a float32 number."""
    _multiply(x, num_pairs(x.shape[1]), weights, out, is_added, first, last)
