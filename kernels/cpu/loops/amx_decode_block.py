"""A block of keys and values in `amx_decode_attention`: scores, softmax weights, weighted values.
Loops take addresses, see `vector_pointers`. Needs numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit.amx import (
    BYTES,
    DEPTH,
    ROWS,
    add_product,
    clear,
    pack_pairs,
    read,
    spacing_of,
    unzip_1,
    unzip_2,
    unzip_4,
    unzip_8,
    unzip_16,
    write,
)
from ..jit.attention_lanes import few
from ..jit.callees import callee, inlined_callee
from ..jit.rounding import rounded_weight, weight_for
from ..jit.vector_pointers import fetch, fma_scalar, load_float, load_slot, read_as, store_float
from ..jit.vector_pointers import read as load
from ..jit.vector_pointers import write as store
from ..jit.vectors import exp2, highest, larger, minus, plus, spread, tanh, times
from .attention_tiles import BLOCK

SIZE = 4  # bytes of a float32 number, and of a slot's
KIND = np.uint16(0)  # keys and values are stored as the bits of bfloat16
_TILE = ROWS * BYTES  # bytes of a tile


class Block(NamedTuple):
    """Keys and values of a head: addresses of their slots and of slot 0's; and their number."""

    slots: int
    keys: int
    values: int
    num: int


class Workspace(NamedTuple):
    """Addresses of intermediate results.

    queries: [dim / 2, stride], pairs of bfloat16 numbers; stride: bytes of a row. keys: [keys / 16,
    dim / 32, 16, 32] bfloat16, a copy of those whose slots are not evenly spaced. values: [keys /
    32, dim / 16, 16, 16], pairs of keys. products: [keys, columns] float32. scores: [columns, keys]
    float32, and weights, the same of bfloat16. rest: a copy of acc for a tile that is not full.
    acc: [queries, dim], row_max [queries] and row_sum [queries, 16]: the results so far.
    """

    queries: int
    stride: int
    keys: int
    values: int
    products: int
    scores: int
    weights: int
    rest: int
    acc: int
    row_max: int
    row_sum: int
    end: int


@inlined_callee
def workspace_at(at, num_queries, dim):
    """The workspace from an address on, which is a multiple of BYTES."""
    stride = (num_queries + ROWS) // ROWS * BYTES  # the last tile may begin at the last query
    stride += BYTES
    keys = at + stride * (dim // 2)
    values = keys + BLOCK * dim * 2
    products = values + BLOCK * dim * 2
    scores = products + BLOCK * BYTES
    weights = scores + BLOCK * BYTES
    rest = weights + BLOCK * BYTES // 2
    acc = rest + ROWS * dim * SIZE
    row_max = acc + num_queries * dim * SIZE
    row_sum = row_max + (num_queries + ROWS - 1) // ROWS * BYTES
    end = row_sum + num_queries * BYTES
    buffers = products, scores, weights, rest, acc, row_max, row_sum, end
    return Workspace(at, stride, keys, values, *buffers)


@callee
def score(block, soon, dim, row, columns, cap, num_fetched, workspace):
    """Write the scores of `columns` queries, from `row` on. soon: what is prefetched in part."""
    count, queries, size = (block.num + ROWS - 1) // ROWS, workspace.queries, columns * SIZE
    s0, s1 = _spacing(block, 0, dim, workspace), _spacing(block, 1, dim, workspace)
    s2, s3 = _spacing(block, 2, dim, workspace), _spacing(block, 3, dim, workspace)
    clear(0)
    clear(1)
    clear(2)
    clear(3)
    for step in range(dim // DEPTH):
        at = queries + step * ROWS * workspace.stride + row * SIZE
        read(6, at, 0, workspace.stride)
        _read_keys(block, 0, step, s0, dim, workspace)
        add_product(0, 4, 6)
        _fetch_some(soon, 4 * step, num_fetched, dim)
        if count > 1:
            _read_keys(block, 1, step, s1, dim, workspace)
            add_product(1, 4, 6)
            _fetch_some(soon, 4 * step + 1, num_fetched, dim)
        if count > 2:
            _read_keys(block, 2, step, s2, dim, workspace)
            add_product(2, 4, 6)
            _fetch_some(soon, 4 * step + 2, num_fetched, dim)
        if count > 3:
            _read_keys(block, 3, step, s3, dim, workspace)
            add_product(3, 4, 6)
            _fetch_some(soon, 4 * step + 3, num_fetched, dim)
    products = workspace.products
    write(0, products, 0, size)
    write(1, products + ROWS * size, 0, size)
    write(2, products + 2 * ROWS * size, 0, size)
    write(3, products + 3 * ROWS * size, 0, size)
    if cap > 0:
        bound, inverse = spread(np.float32(cap), few()), spread(np.float32(1 / cap), few())
        for at in range(products, products + BLOCK * size, BYTES):
            store(at, times(bound, tanh(times(load(at, bound), inverse))))
    for key in range(0, BLOCK, ROWS):
        scores = workspace.scores + key * SIZE
        if columns == 1:
            unzip_1(products + key * size, scores, BLOCK)
        elif columns == 2:
            unzip_2(products + key * size, scores, BLOCK)
        elif columns == 4:
            unzip_4(products + key * size, scores, BLOCK)
        elif columns == 8:
            unzip_8(products + key * size, scores, BLOCK)
        else:
            unzip_16(products + key * size, scores, BLOCK)


@inlined_callee
def _spacing(block, tile, dim, workspace):
    """Bytes from each of a tile's 16 keys to the next; 0 where that differs, and the keys are
    copied."""
    first = tile * ROWS
    if first >= block.num:
        return 0
    if first + ROWS <= block.num:
        spacing = spacing_of(block.slots + first * SIZE)
        if spacing:
            return spacing * dim * 2
    _copy_keys(block, first, dim, workspace)
    return 0


@callee
def _copy_keys(block, first, dim, workspace):
    """Copy 16 keys; behind the last one, it is repeated."""
    to = workspace.keys + first * dim * 2
    for j in range(first, first + ROWS):
        at = block.keys + load_slot(block.slots + min(j, block.num - 1) * SIZE) * dim * 2
        for d in range(0, dim * 2, BYTES):
            store(to + d * ROWS + (j - first) * BYTES, load(at + d, few()))


@inlined_callee
def _read_keys(block, tile, step, spacing, dim, workspace):
    """16 keys, 32 columns of each, into tile 4."""
    if spacing:
        at = block.keys + load_slot(block.slots + tile * ROWS * SIZE) * dim * 2
        read(4, at + step * BYTES, 0, spacing)
    else:
        read(4, workspace.keys + tile * ROWS * dim * 2 + step * _TILE, 0, BYTES)


@callee
def softmax_step(scores, num, row, dim, workspace):
    """One step of online softmax for a query: its scores become weights, rounded to bfloat16,
    relative to the new row maximum; earlier results are rescaled where that is larger."""
    for j in range(num, BLOCK):
        store_float(scores + j * SIZE, np.float32(-np.inf))
    row_max_at, row_sum_at = workspace.row_max + row * SIZE, workspace.row_sum + row * BYTES
    x0, x1 = load(scores, few()), load(scores + BYTES, few())
    x2, x3 = load(scores + 2 * BYTES, few()), load(scores + 3 * BYTES, few())
    row_max, row_sum = load_float(row_max_at), load(row_sum_at, few())
    new_max = highest(larger(larger(x0, x1), larger(x2, x3)))
    if new_max > row_max:
        new_max = np.ceil(new_max)
        rescale = exp2(spread(row_max - new_max, few()))
        row_sum, row_max, acc = times(row_sum, rescale), new_max, workspace.acc + row * dim * SIZE
        store_float(row_max_at, new_max)
        for at in range(acc, acc + dim * SIZE, BYTES):
            store(at, times(load(at, rescale), rescale))
    top = spread(row_max, few())
    x0, x1 = weight_for(minus(x0, top), KIND), weight_for(minus(x1, top), KIND)
    x2, x3 = weight_for(minus(x2, top), KIND), weight_for(minus(x3, top), KIND)
    store(row_sum_at, plus(plus(plus(x0, x1), plus(x2, x3)), row_sum))
    store(scores, rounded_weight(x0, KIND))
    store(scores + BYTES, rounded_weight(x1, KIND))
    store(scores + 2 * BYTES, rounded_weight(x2, KIND))
    store(scores + 3 * BYTES, rounded_weight(x3, KIND))


@callee
def add_values(block, soon, dim, is_fetching, d, two_rows, like):
    """Add the block's values by their weights to two rows of acc, some columns from d on.
    is_fetching: whether the values of the next block are prefetched."""
    (first, second, acc, other), size = two_rows, dim * 2
    base = block.values + d * 2
    for start in range(0, block.num, DEPTH):
        x0 = x1 = y0 = y1 = like
        for j in range(start, min(start + DEPTH, block.num - 1), 2):
            i = j + 1
            value = read_as(base + load_slot(block.slots + j * SIZE) * size, KIND, like)
            x0 = fma_scalar(x0, first + j * SIZE, value)
            y0 = fma_scalar(y0, second + j * SIZE, value)
            value = read_as(base + load_slot(block.slots + i * SIZE) * size, KIND, like)
            x1 = fma_scalar(x1, first + i * SIZE, value)
            y1 = fma_scalar(y1, second + i * SIZE, value)
            if is_fetching:
                fetch_rows(soon, BLOCK + j, 2, dim)
        if start + DEPTH > block.num and block.num % 2:
            j = block.num - 1
            value = read_as(base + load_slot(block.slots + j * SIZE) * size, KIND, like)
            x0 = fma_scalar(x0, first + j * SIZE, value)
            y0 = fma_scalar(y0, second + j * SIZE, value)
        at = acc + d * SIZE
        store(at, plus(load(at, like), plus(x0, x1)))
        at = other + d * SIZE
        store(at, plus(load(at, like), plus(y0, y1)))
    if is_fetching:
        for j in range(block.num // 2 * 2, BLOCK):
            fetch_rows(soon, BLOCK + j, 1, dim)


@inlined_callee
def _fetch_some(soon, part, num, dim):
    """Prefetch the first 8 * num keys of a block in 8 parts, so that memory is always busy."""
    if part < 8 and num:
        fetch_rows(soon, part * num, num, dim)


@inlined_callee
def fetch_rows(soon, first, num, dim):
    """Prefetch rows of a block, of which the keys are the first BLOCK, and the values follow."""
    begin_at, size = soon.keys if first < BLOCK else soon.values, dim * 2
    for i in range(first % BLOCK, first % BLOCK + num):
        at = begin_at + load_slot(soon.slots + min(i, soon.num - 1) * SIZE) * size
        for line in range(at, at + size, 2 * BYTES):
            fetch(line)
            fetch(line + BYTES)


@callee
def pack_values(block, soon, dim, workspace):
    """Values of a block in pairs of keys. The next block is prefetched."""
    for j in range(0, BLOCK, 2):
        at = block.values + load_slot(block.slots + j * SIZE) * dim * 2
        other = block.values + load_slot(block.slots + (j + 1) * SIZE) * dim * 2
        to = workspace.values + j // DEPTH * (dim // ROWS) * _TILE + j % DEPTH // 2 * BYTES
        for d in range(dim // ROWS):
            pack_pairs(at + d * DEPTH, other + d * DEPTH, to + d * _TILE)
        fetch_rows(soon, j, 2, dim)
        fetch_rows(soon, BLOCK + j, 2, dim)


@callee
def multiply_values(acc, dim, workspace):
    """Add the packed values by the weights of 16 queries to 16 rows of acc."""
    weights, step_size = workspace.weights, dim // ROWS * _TILE
    read(4, weights, 0, BLOCK * 2)
    read(5, weights + BYTES, 0, BLOCK * 2)
    for d in range(0, dim // ROWS, 2):
        at, values = acc + d * BYTES, workspace.values + d * _TILE
        read(0, at, 0, dim * SIZE)
        read(1, at + BYTES, 0, dim * SIZE)
        read(6, values, 0, BYTES)
        add_product(0, 4, 6)
        read(7, values + _TILE, 0, BYTES)
        add_product(1, 4, 7)
        read(6, values + step_size, 0, BYTES)
        add_product(0, 5, 6)
        read(7, values + step_size + _TILE, 0, BYTES)
        add_product(1, 5, 7)
        write(0, at, 0, dim * SIZE)
        write(1, at + BYTES, 0, dim * SIZE)
