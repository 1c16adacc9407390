"""Extend attention as in `extend_attention`, by AMX products of int8 limbs (`int8_split`): compiled
loops.

Queries, keys and values are integers times their row's unit, and so are the softmax weights of a
block, which include the units of values. All sums of products are exact, so that a token gets the
same numbers in any batch. By `extend_attention` a prompt of 1,024 tokens takes 11 % longer, and 512
tokens after 4,096 others 38 % (56M parameters, one thread). Only for float32 on a CPU; needs numba.
"""

from __future__ import annotations

import numpy as np

from ..jit.amx import BYTES, ROWS, begin, end
from ..jit.attention_lanes import SQUARE, few, transpose
from ..jit.callees import callee
from ..jit.vectors import (
    exp2,
    fetch,
    fetch_far,
    fma,
    larger,
    load,
    minus,
    over,
    plus,
    spread,
    store,
    times,
)
from ..work_items import LONG
from .attention_tiles import (
    BLOCK,
    LOWEST,
    apply_softcap,
    finalize,
    key_offsets,
    longest,
    mask_scores,
    visible_ranges,
)
from .int8_split import (
    DEPTH,
    LIMBS,
    MAX_SIGNED,
    MAX_UNSIGNED,
    NUM_PRODUCTS,
    TILE,
    UNIT,
    clear_sums,
    combine_sums,
    larger_magnitude,
    largest_magnitude,
    load_right,
    multiply,
    multiply_unsigned,
    store_limbs,
    store_limbs_unsigned,
    store_sums,
)

_DIMS = DEPTH, 2 * DEPTH  # of heads; sums of more products could overflow
LANES = ROWS  # queries of a tile
LEAST = LONG  # queries of a block of keys for which splitting the keys pays
MAX_TILES = 512 // LANES  # tiles that share a block while it is in a near cache
_ROW_SIZE = DEPTH // 4  # float32 numbers in as many bytes as a row of limbs
_TILE_LIMBS = LIMBS * TILE  # the same of a tile's limbs
_TILE_PRODUCTS = NUM_PRODUCTS * TILE
SOON = 16  # how many queries ahead queries and outputs are prefetched
_LEAST = np.float32(1e-30)  # for rows of zeros
_MAX_SIGNED, _MAX_UNSIGNED = np.float32(MAX_SIGNED), np.float32(MAX_UNSIGNED)
_UNIT, _UNSIGNED_UNIT = np.float32(UNIT / MAX_SIGNED), np.float32(UNIT / MAX_SIGNED / MAX_UNSIGNED)


def fits(dim: int) -> bool:
    """Whether heads of such a dim are supported."""
    return dim in _DIMS


def attend(
    q, keys, values, out, lse, table, rows, firsts, starts, ends, bounds, window, scale, cap,
    num_tiles, tokens, is_merged, least, least_not, worker, num_workers,
):  # fmt: skip
    """As `extend_attention.attend`, for a dim that `fits`."""
    num_kv_heads, num_slots, dim = keys.shape
    group, keys_flat = q.shape[1] // num_kv_heads, keys.reshape(-1)
    most = (longest(bounds, least, least_not) * group + LANES - 1) // LANES
    most = min(most, num_tiles) * LANES
    size = BLOCK * dim * LIMBS // 4
    of_queries, of_keys = new_buffer(most * dim * LIMBS // 4), new_buffer(size)
    of_values, transposed = new_buffer(size), new_buffer(size)
    limbs = of_queries, of_keys, of_values, new_buffer(BLOCK * LANES * LIMBS // 4)
    products = new_buffer(max(BLOCK, dim) * LANES * NUM_PRODUCTS)
    buffer = np.empty(SQUARE * dim, np.float32)
    scores = np.empty((BLOCK + 2) * LANES, np.float32)
    acc, units = np.empty(most * dim, np.float32), np.empty(most, np.float32)
    row_max, row_sum = np.empty(most, np.float32), np.empty(most, np.float32)
    lows, highs = np.empty(most, np.float32), np.empty(most, np.float32)
    offsets, of_block = np.empty((2, BLOCK), np.int64), np.empty((2, BLOCK), np.float32)
    of_q = np.empty(most + SOON, np.int64)
    of_tile, of_softmax, count = (units, lows, highs), (acc, row_max, row_sum), 0
    begin(ROWS)
    for s in range(len(rows)):
        slots, num_tokens = table[rows[s]], bounds[s + 1] - bounds[s]
        if not least <= num_tokens < least_not:
            continue
        num_queries = num_tokens * group
        for kv_head in range(num_kv_heads):
            base = kv_head * num_slots
            for start in range(0, num_queries, most):
                count += 1
                if count % num_workers != worker:
                    continue
                used = min(most, num_queries - start)
                of_tiles = start, used, bounds[s], kv_head * group, group
                query_offsets(of_q, q, tokens, of_tiles)
                _pack(q, tokens, of_q, of_queries, transposed, units, buffer, scale, of_tiles)
                visible_ranges(lows, highs, firsts[s], starts[s], ends[s], window, of_tiles, few())
                acc[: (used + LANES - 1) // LANES * LANES * dim] = 0
                row_max[:] = LOWEST
                row_sum[:] = 0
                stop = int(highs[used - 1])
                # blocks begin where they do for all tokens
                first_at = firsts[s] + (int(lows[0]) - firsts[s]) // BLOCK * BLOCK
                key_offsets(offsets[1], slots, first_at, stop, base, dim)
                for at in range(first_at, stop, BLOCK):
                    num = min(BLOCK, stop - at)
                    offsets[0] = offsets[1]
                    if at + BLOCK < stop:
                        key_offsets(offsets[1], slots, at + BLOCK, stop, base, dim)
                    _pack_keys(keys_flat, values, offsets[0], num, dim, of_keys, of_block[0])
                    _pack_values(
                        keys_flat, values, offsets, num, dim, of_values, transposed, of_block[1]
                    )
                    at_block = at, num, used, dim
                    _attend_block(
                        at_block, limbs, products, cap, of_tile, of_block, of_softmax, scores
                    )
                query_offsets(of_q, out, tokens, of_tiles)
                unpack(of_softmax, out, lse, tokens, is_merged, of_tiles, of_q, buffer)
    end()


@callee
def new_buffer(size):
    """A new array of so many numbers, aligned to rows of tiles."""
    numbers = np.empty(size + BYTES // 4, np.float32)
    first = -numbers.ctypes.data % BYTES // 4
    return numbers[first : first + size]


@callee
def query_offsets(offsets, numbers, tokens, of_tiles):
    """offsets: where each query of tiles begins in numbers [tokens, heads, dim]; behind the last
    one, it is repeated."""
    start, used, first, first_head, group = of_tiles
    token, head, at = first + start // group, start % group, 0
    for i in range(len(offsets)):
        if i < used:
            at = tokens[token] * numbers.strides[0] + (first_head + head) * numbers.strides[1]
            head += 1
            if head == group:
                token, head = token + 1, 0
        offsets[i] = at // numbers.itemsize


@callee
def _max_magnitude(numbers, at, dim):
    """The largest magnitude of a row's numbers."""
    most = spread(_LEAST, few())
    for d in range(0, dim, LANES):
        most = larger_magnitude(most, load(numbers, at + d, most))
    return largest_magnitude(most)


@callee
def _store_row_limbs(numbers, at, factor, dim, limbs, to, stride):
    """A row's limbs [dim / 64, 3, 64]; `stride` numbers from one limb to the next."""
    factor = spread(factor, few())
    for d in range(0, dim, DEPTH):
        x0 = times(load(numbers, at + d, factor), factor)
        x1 = times(load(numbers, at + d + LANES, factor), factor)
        x2 = times(load(numbers, at + d + 2 * LANES, factor), factor)
        x3 = times(load(numbers, at + d + 3 * LANES, factor), factor)
        store_limbs(x0, x1, x2, x3, limbs, to + d // DEPTH * LIMBS * stride, stride)


@callee
def _pack(q, tokens, offsets, limbs, transposed, units, buffer, scale, of_tiles):
    """limbs: [tiles, dim / 64, 3, 16, 16 queries, 4]; the last query is repeated to fill its tile.
    offsets: by `query_offsets`. transposed: a buffer for the limbs of SQUARE queries. buffer: for
    one query."""
    start, used, first, first_head, group = of_tiles
    dim, is_even = q.shape[2], q.strides[2] == q.itemsize
    size = dim * LIMBS // 4
    for i in range((used + LANES - 1) // LANES * LANES):
        if is_even:
            at, ahead = offsets[i], offsets[i + SOON]
            for d in range(0, dim, LANES):
                fetch(q, ahead + d)
                store(buffer, d, load(q, at + d, few()))
        else:
            query = start + min(i, used - 1)
            for d in range(dim):
                buffer[d] = q[tokens[first + query // group], first_head + query % group, d]
        most, row = _max_magnitude(buffer, 0, dim), i % SQUARE
        units[i] = most * (scale / _MAX_SIGNED)
        _store_row_limbs(
            buffer, 0, _MAX_SIGNED / most, dim, transposed, row * _ROW_SIZE, SQUARE * _ROW_SIZE
        )
        if row == SQUARE - 1:
            to = i // LANES * LANES * size + i % LANES - row
            for j in range(0, size, SQUARE):
                at = j // _ROW_SIZE * SQUARE * _ROW_SIZE + j % _ROW_SIZE
                transpose(transposed, at, _ROW_SIZE, limbs, to + j * LANES, LANES)


@callee
def _pack_keys(keys, values, offsets, num, dim, limbs, units):
    """limbs: [keys / 16, dim / 64, 3, 16 keys, 64]. Values are prefetched."""
    for j in range((num + ROWS - 1) // ROWS * ROWS):
        for d in range(0, dim, LANES):
            fetch(values, offsets[j] + d)
        most = _max_magnitude(keys, offsets[j], dim)
        units[j] = most * _UNIT
        to = j // ROWS * (dim // DEPTH) * _TILE_LIMBS + j % ROWS * _ROW_SIZE
        _store_row_limbs(keys, offsets[j], _MAX_SIGNED / most, dim, limbs, to, TILE)


@callee
def _pack_values(keys, values, offsets, num, dim, limbs, transposed, units):
    """limbs: [dim / 16, 3, 16 columns, 64 keys]. transposed: a buffer of the same size. The next
    block, at offsets[1], is prefetched."""
    for j in range(0, num, 4):
        for i in range(j, j + 4):
            units[i] = _max_magnitude(values, offsets[0, i], dim)
            for d in range(0, dim, LANES):
                fetch_far(keys, offsets[1, i] + d)
                fetch_far(values, offsets[1, i] + d)
        s0, s1 = spread(_MAX_SIGNED / units[j], few()), spread(_MAX_SIGNED / units[j + 1], few())
        s2 = spread(_MAX_SIGNED / units[j + 2], few())
        s3 = spread(_MAX_SIGNED / units[j + 3], few())
        for d in range(0, dim, LANES):
            x0 = times(load(values, offsets[0, j] + d, s0), s0)
            x1 = times(load(values, offsets[0, j + 1] + d, s1), s1)
            x2 = times(load(values, offsets[0, j + 2] + d, s2), s2)
            x3 = times(load(values, offsets[0, j + 3] + d, s3), s3)
            store_limbs(x0, x1, x2, x3, transposed, j // 4 * dim + d, _ROW_SIZE * dim)
    for limb in range(LIMBS):
        for d in range(0, dim, SQUARE):
            to = d // ROWS * _TILE_LIMBS + limb * TILE + d % ROWS * _ROW_SIZE
            for row in range(0, _ROW_SIZE, SQUARE):
                transpose(
                    transposed, (limb * _ROW_SIZE + row) * dim + d, dim, limbs, to + row, _ROW_SIZE
                )


@callee
def _attend_block(at_block, limbs, products, cap, of_tile, of_block, of_softmax, scores):
    """A block of keys and values, for all tiles of queries that see some of it."""
    (at, num_keys, used, dim), (units, lows, highs) = at_block, of_tile
    of_queries, of_keys, of_values, of_weights = limbs
    (acc, row_max, row_sum), before = of_softmax, -1
    for tile in range(0, used, LANES):
        last = tile + LANES - 1
        num = min(num_keys, int(highs[last]) - at)
        if num <= 0 or at + num <= lows[tile]:
            continue
        _multiply_keys(of_keys, of_queries, tile, num, dim, products)
        _score(products, num, load(units, tile, few()), of_block[0], scores)
        if before >= 0:  # not sooner: registers would wait for weights just written
            _accumulate_values(of_values, of_weights, before, dim, products, scores, acc)
        if cap > 0:
            apply_softcap(scores, num, cap, few())
        if at < lows[last] or at + num > highs[tile]:
            mask_scores(scores, num, lows, highs, tile, at, few())
        _softmax_step(scores, num, row_max, row_sum, tile, of_block[1])
        _pack_weights(scores, num, of_weights)
        before = tile
    if before >= 0:
        _accumulate_values(of_values, of_weights, before, dim, products, scores, acc)


@callee
def _multiply_keys(of_keys, of_queries, tile, num, dim, products):
    """products: [keys / 16, 4, 16 keys, 16 queries] of a tile."""
    steps, left = dim // DEPTH, 0
    right = tile // LANES * steps * _TILE_LIMBS
    for row in range((num + ROWS - 1) // ROWS):
        clear_sums()
        for step in range(steps):
            if row == 0 or steps > 1:
                load_right(of_queries, right + step * _TILE_LIMBS)
            multiply(of_keys, left)
            left += _TILE_LIMBS
        store_sums(products, row * _TILE_PRODUCTS)


@callee
def _score(products, num, unit, units, scores):
    """scores: [keys, 16]; behind the last key, those of unused keys."""
    for j in range((num + ROWS - 1) // ROWS * ROWS):
        x = combine_sums(products, j // ROWS * _TILE_PRODUCTS + j % ROWS * LANES, TILE)
        store(scores, j * LANES, times(times(x, spread(units[j], unit)), unit))


@callee
def _softmax_step(scores, num, row_max, row_sum, tile, units):
    """One step of online softmax: scores become weights relative to the new row maximum, times the
    units of values. Behind the scores: the rescale factor for earlier results, and the largest
    weight."""
    old_max = p0 = p1 = p2 = p3 = load(row_max, tile, few())
    full = (num + 3) // 4 * 4
    for j in range(num, full):
        store(scores, j * LANES, spread(LOWEST, old_max))
    for j in range(0, full, 4):
        p0 = larger(p0, load(scores, j * LANES, old_max))
        p1 = larger(p1, load(scores, (j + 1) * LANES, old_max))
        p2 = larger(p2, load(scores, (j + 2) * LANES, old_max))
        p3 = larger(p3, load(scores, (j + 3) * LANES, old_max))
    new_max = larger(larger(p0, p1), larger(p2, p3))
    rescale, most = exp2(minus(old_max, new_max)), spread(_LEAST, new_max)
    block_sum = few()  # small weights added one by one to a large sum would be lost
    for j in range(num):
        weight = exp2(minus(load(scores, j * LANES, new_max), new_max))
        block_sum = plus(block_sum, weight)
        weight = times(weight, spread(units[j], new_max))
        most = larger_magnitude(most, weight)
        store(scores, j * LANES, weight)
    for j in range(num, full):
        store(scores, j * LANES, few())
    store(row_max, tile, new_max)
    store(row_sum, tile, fma(block_sum, load(row_sum, tile, new_max), rescale))
    store(scores, BLOCK * LANES, rescale)
    store(scores, (BLOCK + 1) * LANES, most)


@callee
def _pack_weights(scores, num, limbs):
    """limbs: [3, 16, 16 queries, 4 keys]."""
    factor = over(spread(_MAX_UNSIGNED, few()), load(scores, (BLOCK + 1) * LANES, few()))
    to = 0
    for j in range(0, num * LANES, 4 * LANES):
        x0 = times(load(scores, j, factor), factor)
        x1 = times(load(scores, j + LANES, factor), factor)
        x2 = times(load(scores, j + 2 * LANES, factor), factor)
        x3 = times(load(scores, j + 3 * LANES, factor), factor)
        store_limbs_unsigned(x0, x1, x2, x3, limbs, to, TILE)
        to += LANES
    for at in range(to, TILE, LANES):
        store(limbs, at, few())
        store(limbs, at + TILE, few())
        store(limbs, at + 2 * TILE, few())


@callee
def _accumulate_values(of_values, of_weights, tile, dim, products, scores, acc):
    """acc [tiles, dim, 16 queries]: rescaled, plus the values by their weights."""
    rescale, most = load(scores, BLOCK * LANES, few()), load(scores, (BLOCK + 1) * LANES, few())
    unit = times(most, spread(_UNSIGNED_UNIT, most))
    load_right(of_weights, 0)
    for g in range(dim // ROWS):
        clear_sums()
        multiply_unsigned(of_values, g * _TILE_LIMBS)
        store_sums(products, g * _TILE_PRODUCTS)
    for d in range(dim):
        at = tile * dim + d * LANES
        x = combine_sums(products, d // ROWS * _TILE_PRODUCTS + d % ROWS * LANES, TILE)
        x = times(x, unit)
        store(acc, at, fma(x, load(acc, at, rescale), rescale))


@callee
def unpack(of_softmax, out, lse, tokens, is_merged, of_tiles, offsets, buffer):
    """Write outputs and log-sum-exps. offsets: by `query_offsets`, in out. buffer: for SQUARE
    queries."""
    (start, used, first, first_head, group), (acc, row_max, row_sum) = of_tiles, of_softmax
    dim, token, head = out.shape[2], first + start // group, start % group
    for i in range(used):
        if i % SQUARE == 0:
            at = i // LANES * LANES * dim + i % LANES
            for d in range(0, dim, SQUARE):
                transpose(acc, at + d * LANES, LANES, buffer, d, dim)
        t, h = tokens[token], first_head + head
        lse[t, h], scale, old_scale = finalize(row_max[i], row_sum[i], lse[t, h], is_merged)
        to, ahead = offsets[i], offsets[i + SOON]
        for d in range(0, dim, LANES):
            fetch(out, ahead + d)
            x = times(load(buffer, i % SQUARE * dim + d, few()), spread(scale, few()))
            if is_merged:
                x = fma(x, load(out, to + d, x), spread(old_scale, x))
            store(out, to + d, x)
        head += 1
        if head == group:
            token, head = token + 1, 0
