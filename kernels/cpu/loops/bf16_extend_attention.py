"""Extend attention over bfloat16 keys and values, by AMX: compiled loops.

As `int8_extend_attention`, with queries and softmax weights rounded to bfloat16: two products of
tiles instead of sixteen. Sums are float32. All loops over bfloat16 keys round alike (`rounded_for`,
`rounded_weight`). In attention, 256 tokens take 2.7 ms rather than 6.1 by `extend_attention`, 512
tokens after 512 others 12.5 rather than 48 (56M parameters, one thread). Only on a CPU; needs
numba.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..jit.addresses import bare, hold
from ..jit.amx import (
    BYTES,
    DEPTH,
    ROWS,
    add_product,
    begin,
    clear,
    copy_row,
    end,
    read,
    store_rounded_weights,
    write,
)
from ..jit.attention_lanes import SQUARE, few, transpose
from ..jit.callees import inlined_callee
from ..jit.rounding import row_max_for, weight_for
from ..jit.vectors import (
    address_in,
    all_lanes,
    exp2,
    fetch,
    fetch_far,
    fma,
    larger,
    load,
    lowest,
    minus,
    plus,
    single,
    spread,
    store,
    times,
)
from .attention_tiles import (
    BLOCK,
    LOWEST,
    apply_softcap,
    key_offsets,
    longest,
    mask_scores,
    visible_ranges,
)
from .int8_extend_attention import SOON, new_buffer, query_offsets, unpack

LANES = ROWS  # queries of a tile
LEAST = 1  # queries from which this is used: a query's sums are the same for any number
MAX_TILES = 512 // LANES  # tiles that share a block while it is in a near cache
MOST_DIM = 256
_TILE = ROWS * ROWS  # float32 numbers of a tile
_WORDS = ROWS * DEPTH  # bfloat16 numbers of a tile
_STEPS = BLOCK // DEPTH  # tiles of weights


def fits(dim: int) -> bool:
    """Whether heads of such a dim are supported."""
    return dim % DEPTH == 0 and dim <= MOST_DIM


def attend(
    q, keys, values, out, lse, table, rows, firsts, starts, ends, bounds, window, scale, cap,
    num_tiles, tokens, is_merged, least, least_not, worker, num_workers,
):  # fmt: skip
    """As `extend_attention.attend`, for a dim that `fits`."""
    num_kv_heads, num_slots, dim = keys.shape
    group, keys_flat = q.shape[1] // num_kv_heads, keys.reshape(-1)
    most = (longest(bounds, least, least_not) * group + LANES - 1) // LANES
    most = min(most, num_tiles) * LANES
    kv_size = BLOCK * dim // 2
    buffers = (
        *(new_buffer(most * dim // 2), new_buffer(kv_size), new_buffer(kv_size)),
        *(new_buffer(kv_size), new_buffer(_STEPS * _TILE), new_buffer((BLOCK + 1) * LANES)),
        *(new_buffer(most * dim), new_buffer(SQUARE * dim // 2), new_buffer(SQUARE * dim)),
        *(new_buffer(most), new_buffer(most), new_buffer(most), new_buffer(most)),
    )
    lists, count = (np.empty((2, BLOCK), np.int64), np.empty(most + SOON, np.int64)), 0
    q, keys_flat, values = bare(q), bare(keys_flat), bare(values)
    of_queries, of_keys = bare(buffers[0]), bare(buffers[1].view(np.uint16))
    of_values, paired = bare(buffers[2]), bare(buffers[3])
    of_weights, scores = bare(buffers[4].view(np.uint16)), bare(buffers[5])
    acc, rounded, buffer = bare(buffers[6]), bare(buffers[7]), bare(buffers[8])
    row_max, row_sum = bare(buffers[9]), bare(buffers[10])
    lows, highs = bare(buffers[11]), bare(buffers[12])
    packed, of_tile = (of_queries, of_keys, of_values, of_weights), (lows, highs)
    of_softmax, offsets, of_q = (acc, row_max, row_sum), bare(lists[0]), bare(lists[1])
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
                _pack(q, tokens, of_q, of_queries, rounded, scale, of_tiles)
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
                    _pack_keys(keys_flat, values, offsets[0], num, dim, of_keys)
                    _pack_values(keys_flat, values, offsets, num, dim, of_values, paired)
                    _attend_block((at, num, used, dim), packed, cap, of_tile, of_softmax, scores)
                query_offsets(of_q, out, tokens, of_tiles)
                unpack(of_softmax, out, lse, tokens, is_merged, of_tiles, of_q, buffer)
    end()
    hold((buffers, lists))


@intrinsic
def _pair_rows(typing, words, first, second, numbers, to):
    """16 words of a flat uint16 array from one index on, and 16 from another, in pairs: as 16
    numbers of a flat float32 array from `to` on."""

    def emit(context, builder, signature, args):
        words, first, second, numbers, to = args
        shorts, ints = (ir.VectorType(ir.IntType(bits), ROWS) for bits in (16, 32))
        halves = []
        for at in (first, second):
            pointer = address_in(context, builder, signature.args[0], words, at, shorts)
            halves.append(builder.zext(builder.load(pointer, align=2), ints))
        upper = builder.shl(halves[1], all_lanes(ints, 16))
        pointer = address_in(context, builder, signature.args[3], numbers, to, ints)
        builder.store(builder.or_(halves[0], upper), pointer, align=4)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.intp, numbers, types.intp), emit


@inlined_callee
def _pack(q, tokens, offsets, queries, rounded, scale, of_tiles):
    """queries: [tiles, dim / 2, 16 queries], each a pair of bfloat16 numbers, scaled; the last
    query is repeated to fill its tile. offsets: by `query_offsets`. rounded: a buffer for SQUARE
    queries."""
    start, used, first, first_head, group = of_tiles
    dim, is_even, words = q.shape[2], q.strides[2] == q.itemsize, rounded.view(np.uint16)
    scales = spread(scale, few())
    for i in range((used + LANES - 1) // LANES * LANES):
        row = i % SQUARE
        if is_even:
            at, ahead = offsets[i], offsets[i + SOON]
            for d in range(0, dim, LANES):
                fetch(q, ahead + d)
                store(words, row * dim + d, times(load(q, at + d, scales), scales))
        else:
            query = start + min(i, used - 1)
            token, head = tokens[first + query // group], first_head + query % group
            for d in range(dim):
                store(words, row * dim + d, spread(q[token, head, d] * scale, single()))
        if row == SQUARE - 1:
            to = i // LANES * LANES * (dim // 2) + i % LANES - row
            for j in range(0, dim // 2, SQUARE):
                transpose(rounded, j, dim // 2, queries, to + j * LANES, LANES)


@inlined_callee
def _pack_keys(keys, values, offsets, num, dim, words):
    """words: [keys / 16, dim / 32, 16 keys, 32]. Values are prefetched."""
    for j in range((num + ROWS - 1) // ROWS * ROWS):
        to = j // ROWS * ROWS * dim + j % ROWS * DEPTH
        for d in range(0, dim, DEPTH):
            fetch(values, offsets[j] + d)
            copy_row(keys, offsets[j] + d, words, to + d * ROWS)


@inlined_callee
def _pack_values(keys, values, offsets, num, dim, numbers, paired):
    """numbers: [dim / 16, keys / 32, 16 columns, 16 pairs of keys]. paired: a buffer of the same
    size. The next block, at offsets[1], is prefetched."""
    for j in range(0, num, 2):
        for d in range(0, dim, DEPTH):
            fetch_far(keys, offsets[1, j] + d)
            fetch_far(keys, offsets[1, j + 1] + d)
            fetch_far(values, offsets[1, j] + d)
            fetch_far(values, offsets[1, j + 1] + d)
        for d in range(0, dim, ROWS):
            _pair_rows(values, offsets[0, j] + d, offsets[0, j + 1] + d, paired, j // 2 * dim + d)
    num_pairs = (num + DEPTH - 1) // DEPTH * ROWS
    paired[(num + 1) // 2 * dim : num_pairs * dim] = 0  # zero weights times NaN would be NaN
    for pair in range(0, num_pairs, SQUARE):
        for d in range(0, dim, SQUARE):
            to = (d // ROWS * _STEPS + pair // ROWS) * _TILE + d % ROWS * ROWS + pair % ROWS
            transpose(paired, pair * dim + d, dim, numbers, to, ROWS)


@inlined_callee
def _attend_block(at_block, packed, cap, of_tile, of_softmax, scores):
    """A block of keys and values, for all tiles of queries that see some of it."""
    (at, num_keys, used, dim), (lows, highs) = at_block, of_tile
    of_queries, of_keys, of_values, of_weights = packed
    (acc, row_max, row_sum), before, steps = of_softmax, -1, 0
    for tile in range(0, used, LANES):
        last = tile + LANES - 1
        num = min(num_keys, int(highs[last]) - at)
        if num <= 0 or at + num <= lows[tile]:
            continue
        _score(of_keys, of_queries, tile, num, dim, scores)
        if before >= 0:  # not sooner: tiles would wait for weights just written
            _accumulate_values(of_values, of_weights, steps, before, dim, scores, acc)
        if cap > 0:
            apply_softcap(scores, num, cap, few())
        if at < lows[last] or at + num > highs[tile]:
            mask_scores(scores, num, lows, highs, tile, at, few())
        _softmax_step(scores, num, row_max, row_sum, tile, of_weights)
        before, steps = tile, (num + DEPTH - 1) // DEPTH
    if before >= 0:
        _accumulate_values(of_values, of_weights, steps, before, dim, scores, acc)


@inlined_callee
def _score(of_keys, of_queries, tile, num, dim, scores):
    """scores: [keys, 16 queries]; behind the last key, those of unused keys."""
    right, size, count = tile * (dim // 2), ROWS * dim, (num + ROWS - 1) // ROWS
    clear(0)
    clear(1)
    clear(2)
    clear(3)
    for step in range(dim // DEPTH):
        read(6, of_queries, right + step * _TILE, BYTES)
        left = step * _WORDS
        read(4, of_keys, left, BYTES)
        add_product(0, 4, 6)
        if count > 1:
            read(5, of_keys, left + size, BYTES)
            add_product(1, 5, 6)
        if count > 2:
            read(4, of_keys, left + 2 * size, BYTES)
            add_product(2, 4, 6)
        if count > 3:
            read(5, of_keys, left + 3 * size, BYTES)
            add_product(3, 5, 6)
    write(0, scores, 0, BYTES)
    write(1, scores, _TILE, BYTES)
    write(2, scores, 2 * _TILE, BYTES)
    write(3, scores, 3 * _TILE, BYTES)


@inlined_callee
def _softmax_step(scores, num, row_max, row_sum, tile, words):
    """One step of online softmax: scores become weights relative to the new row maximum, in words:
    [keys / 2, 16 queries, 2]. Behind the scores: the rescale factor for earlier results."""
    old_max = p0 = p1 = p2 = p3 = load(row_max, tile, few())
    full = (num + 3) // 4 * 4
    for j in range(num, full):
        store(scores, j * LANES, spread(LOWEST, old_max))
    for j in range(0, full, 4):
        p0 = larger(p0, load(scores, j * LANES, old_max))
        p1 = larger(p1, load(scores, (j + 1) * LANES, old_max))
        p2 = larger(p2, load(scores, (j + 2) * LANES, old_max))
        p3 = larger(p3, load(scores, (j + 3) * LANES, old_max))
    new_max = row_max_for(larger(larger(p0, p1), larger(p2, p3)), np.uint16(0))
    rescale = exp2(minus(old_max, new_max))
    x = y = few()  # small weights added one by one to a large sum would be lost
    for j in range(0, full, 2):
        first = weight_for(minus(load(scores, j * LANES, new_max), new_max), np.uint16(0))
        second = weight_for(minus(load(scores, (j + 1) * LANES, new_max), new_max), np.uint16(0))
        x, y = plus(x, first), plus(y, second)
        store_rounded_weights(first, second, words, j * LANES)
    for j in range(full, (num + DEPTH - 1) // DEPTH * DEPTH, 2):
        store_rounded_weights(few(), few(), words, j * LANES)
    store(row_max, tile, new_max)
    store(row_sum, tile, fma(plus(x, y), load(row_sum, tile, new_max), rescale))
    store(scores, BLOCK * LANES, rescale)


@inlined_callee
def _accumulate_values(of_values, of_weights, steps, tile, dim, scores, acc):
    """acc [tiles, dim, 16 queries]: rescaled, plus the values by their weights."""
    rescale = load(scores, BLOCK * LANES, few())
    if lowest(rescale) != 1:  # products by one change nothing
        for at in range(tile * dim, (tile + LANES) * dim, LANES):
            store(acc, at, times(load(acc, at, rescale), rescale))
    read(6, of_weights, 0, BYTES)
    if steps > 1:
        read(7, of_weights, _WORDS, BYTES)
    for d in range(0, dim, 2 * ROWS):
        at, left = tile * dim + d * LANES, d // ROWS * _STEPS * _TILE
        read(0, acc, at, BYTES)
        read(1, acc, at + _TILE, BYTES)
        read(4, of_values, left, BYTES)
        add_product(0, 4, 6)
        read(5, of_values, left + _STEPS * _TILE, BYTES)
        add_product(1, 5, 6)
        if steps > 1:
            read(4, of_values, left + _TILE, BYTES)
            add_product(0, 4, 7)
            read(5, of_values, left + (_STEPS + 1) * _TILE, BYTES)
            add_product(1, 5, 7)
        write(0, acc, at, BYTES)
        write(1, acc, at + _TILE, BYTES)
