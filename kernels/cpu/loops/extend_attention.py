"""Extend attention: many new tokens of each sequence over keys in any slots, read in place:
compiled loops.

Tiles of queries, one query to a lane, are scored against blocks of keys, with an online softmax
from block to block (as in FlashAttention). The heads of a group and their tokens share a tile, so
that a key is loaded once for all of them. Keys are float32 numbers, or the bits of bfloat16 ones.
Needs numba.
"""

from __future__ import annotations

import numpy as np

from ..jit import amx, pairs
from ..jit.attention_lanes import FEW, SQUARE, few, transpose, width
from ..jit.callees import callee
from ..jit.rounding import rounded_for, rounded_weight, row_max_for, weight_for
from ..jit.vector_pointers import zero_like
from ..jit.vectors import (
    NARROW,
    REGISTERS,
    STORED,
    WIDE,
    exp2,
    fetch_far,
    fma,
    fma_at,
    larger,
    load,
    minus,
    narrow,
    plus,
    single,
    spread,
    store,
    times,
    wide,
    zeros,
)
from .attention_tiles import (
    BLOCK,
    LOWEST,
    accumulate_pairs,
    add_four,
    apply_softcap,
    finalize,
    key_offsets,
    longest,
    mask_scores,
    pair_up,
    pair_up_weights,
    score_four_pairs,
    store_eight,
    store_four,
    visible_ranges,
)

LANES = min(REGISTERS // 8, 32)  # queries of a tile; FEW where there are no more
MAX_TILES = 256 // LANES  # tiles that share a block while it is in a near cache
_MOST_FEW = 3 * FEW  # queries up to which a tile half empty costs more than a small one
_ROWS = 8  # sums at a time
_LINE = 16  # numbers that a cache fetches at a time
_INTS = "int32[::1]"
_SIGNATURE = (
    "void(float32[:, :, :], {0}[:, :, ::1], {0}[::1], float32[:, :, ::1], float32[:, ::1],"
    f" int32[:, ::1], {_INTS}, {_INTS}, {_INTS}, {_INTS}, int64[::1], int64, float32, float32,"
    " int64, int64[::1], boolean, int64, int64, int64, int64)"
)
SIGNATURES = {name: _SIGNATURE.format(stored) for name, stored in STORED.items()}
_most = zeros(LANES)
_HAS_PAIRS = pairs.can_multiply() and not amx.can_multiply()


def attend(
    q, keys, values, out, lse, table, rows, firsts, starts, ends, bounds, window, scale, cap,
    num_tiles, tokens, is_merged, least, least_not, worker, num_workers,
):  # fmt: skip
    """Attention of the tokens tokens[bounds[s]:bounds[s + 1]] of q [tokens, heads, dim] at
    positions from starts[s] on, for each sequence s, over the keys firsts[s]:ends[s] in the slots
    of row rows[s] of the table. A token sees the last `window` keys up to itself.

    keys: [kv_heads, slots, dim]; values: [kv_heads * slots * dim] of the same. scale: of scores to
    base 2. cap: softcap of these; 0: none. num_tiles: that share one read of the keys; of all such
    groups, this call computes those of one worker of num_workers. Skips sequences of less than
    `least` tokens, or of `least_not` or more. Writes the same tokens of out [tokens, heads, dim]
    and of lse [tokens, heads], the log-sum-exp of the scores; is_merged: merges them with what is
    there.
    """
    config = window, scale, cap, num_tiles * LANES, is_merged, least, least_not, worker, num_workers
    of_keys, of_item = (table, rows, firsts, ends), (starts, bounds, tokens)
    most = longest(bounds, least, least_not) * (q.shape[1] // keys.shape[0])
    if most <= _MOST_FEW and 0 < most % LANES <= FEW < LANES:
        _attend(q, keys, values, out, lse, of_keys, of_item, config, few())
    else:
        _attend(q, keys, values, out, lse, of_keys, of_item, config, _most())


@callee
def _attend(q, keys, values, out, lse, of_keys, of_item, config, like):
    """In tiles of as many queries as a vector like `like` has lanes."""
    table, rows, firsts, ends = of_keys
    starts, bounds, tokens = of_item
    window, scale, cap, most, is_merged, least, least_not, worker, num_workers = config
    lanes = width(like)
    num_kv_heads, num_slots, dim = keys.shape
    group, keys_flat, kind = q.shape[1] // num_kv_heads, keys.reshape(-1), zero_like(keys)
    longest_one = longest(bounds, least, least_not) * group
    most = min(most, (longest_one + lanes - 1) // lanes * lanes)
    queries, acc = np.empty(most * dim, np.float32), np.empty(most * dim, np.float32)
    row_max, row_sum = np.empty(most, np.float32), np.empty(most, np.float32)
    lows, highs = np.empty(most, np.float32), np.empty(most, np.float32)
    scores, rescales = np.empty(BLOCK * lanes, np.float32), np.empty(lanes, np.float32)
    offsets, soon = np.zeros(BLOCK, np.int64), np.zeros(BLOCK, np.int64)
    buffer, count = np.empty(SQUARE * dim, np.float32), 0
    for s in range(len(rows)):
        slots, num_tokens = table[rows[s]], bounds[s + 1] - bounds[s]
        if not least <= num_tokens < least_not:
            continue
        num_queries = num_tokens * group
        for kv_head in range(num_kv_heads):
            for start in range(0, num_queries, most):
                count += 1
                if count % num_workers != worker:
                    continue
                used = min(most, num_queries - start)
                of_tiles = start, used, bounds[s], kv_head * group, group
                _pack(q, tokens, queries, buffer, (scale, kind), of_tiles, like)
                _pair_up(queries, (used + lanes - 1) // lanes, keys_flat, dim, like)
                visible_ranges(lows, highs, firsts[s], starts[s], ends[s], window, of_tiles, like)
                acc[:] = 0
                row_max[:] = LOWEST
                row_sum[:] = 0
                stop, base = int(highs[used - 1]), kv_head * num_slots
                begin = firsts[s] + (int(lows[0]) - firsts[s]) // BLOCK * BLOCK  # as for all tokens
                for at in range(begin, stop, BLOCK):
                    num_keys = min(BLOCK, stop - at)
                    if lanes < LANES and at + BLOCK < stop:
                        key_offsets(soon, slots, at + BLOCK, stop, base, dim)
                    elif lanes < LANES and kv_head + 1 < num_kv_heads:
                        key_offsets(soon, slots, begin, stop, base + num_slots, dim)
                    if lanes == LANES or at == begin:
                        key_offsets(offsets, slots, at, stop, base, dim)
                    for tile in range(0, used, lanes):
                        last = tile + lanes - 1
                        num = min(num_keys, int(highs[last]) - at)
                        if num <= 0 or at + num <= lows[tile]:
                            continue
                        of_tile = queries, tile * dim, scores
                        _score_tile(keys_flat, values, offsets, soon, num, dim, of_tile, like)
                        if cap > 0:
                            apply_softcap(scores, num, cap, like)
                        if at < lows[last] or at + num > highs[tile]:
                            mask_scores(scores, num, lows, highs, tile, at, like)
                        _softmax_step(scores, num, row_max, row_sum, tile, (rescales, kind), like)
                        _pair_up_weights(scores, num, values, dim, like)
                        for lane in range(0, min(lanes, used - tile), _ROWS):
                            of_rows = scores, lanes, rescales, acc, lane
                            _accumulate(values, offsets, num, dim, of_rows, (tile + lane) * dim)
                    if lanes < LANES:
                        offsets[:] = soon
                _unpack(acc, row_max, row_sum, out, lse, tokens, is_merged, of_tiles)


@callee
def _fetch(keys, values, soon, first, dim):
    """Prefetch rows."""
    for j in range(first, first + _ROWS):
        for d in range(0, dim, _LINE):
            fetch_far(keys, soon[j] + d)
            fetch_far(values, soon[j] + d)


@callee
def _pack(q, tokens, queries, buffer, of_scores, of_tiles, like):
    """queries: [tiles, dim, lanes], scaled; the last query is repeated to fill its tile. buffer:
    for [SQUARE, dim]."""
    (start, used, first, first_head, group), (scale, kind) = of_tiles, of_scores
    dim, lanes, scales, one = q.shape[2], width(like), spread(scale, narrow()), single()
    is_even = dim % SQUARE == 0 and q.strides[2] == q.itemsize
    for i in range((used + lanes - 1) // lanes * lanes):
        query = start + min(i, used - 1)
        t, h = tokens[first + query // group], first_head + query % group
        if not is_even:
            at = i // lanes * lanes * dim + i % lanes
            for d in range(dim):
                store(queries, at + d * lanes, rounded_for(spread(q[t, h, d] * scale, one), kind))
            continue
        source, row = (t * q.strides[0] + h * q.strides[1]) // q.itemsize, i % SQUARE
        for d in range(0, dim, SQUARE):
            store(
                buffer, row * dim + d, rounded_for(times(load(q, source + d, scales), scales), kind)
            )
        if row == SQUARE - 1:
            at = i // lanes * lanes * dim + i % lanes - row
            for d in range(0, dim, SQUARE):
                transpose(buffer, d, dim, queries, at + d * lanes, lanes)


@callee
def _unpack(acc, row_max, row_sum, out, lse, tokens, is_merged, of_tiles):
    start, used, first, first_head, group = of_tiles
    dim = out.shape[2]
    for i in range(used):
        t, head = tokens[first + (start + i) // group], first_head + (start + i) % group
        lse[t, head], scale, old_scale = finalize(row_max[i], row_sum[i], lse[t, head], is_merged)
        for d in range(dim):
            before = out[t, head, d] * old_scale if is_merged else np.float32(0)
            out[t, head, d] = before + acc[i * dim + d] * scale


@callee
def _score(keys, values, offsets, soon, num, dim, of_tile, like):
    """scores [keys, lanes], eight keys at a time; behind the last key, those of unused keys."""
    (queries, at, scores), lanes = of_tile, width(like)
    for j in range(0, num, _ROWS):
        if lanes < LANES and at == 0:  # more queries hide what reading takes
            _fetch(keys, values, soon, j, dim)
        if lanes > WIDE:  # a register of sums more for each key: four keys fill half of all
            _score_four(keys, offsets, j, dim, of_tile, like)
            _score_four(keys, offsets, j + 4, dim, of_tile, like)
            continue
        k0, k1, k2, k3 = offsets[j], offsets[j + 1], offsets[j + 2], offsets[j + 3]
        k4, k5, k6, k7 = offsets[j + 4], offsets[j + 5], offsets[j + 6], offsets[j + 7]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = like
        for d in range(dim):
            x = load(queries, at + d * lanes, s0)
            s0 = fma_at(s0, keys, k0 + d, x)
            s1 = fma_at(s1, keys, k1 + d, x)
            s2 = fma_at(s2, keys, k2 + d, x)
            s3 = fma_at(s3, keys, k3 + d, x)
            s4 = fma_at(s4, keys, k4 + d, x)
            s5 = fma_at(s5, keys, k5 + d, x)
            s6 = fma_at(s6, keys, k6 + d, x)
            s7 = fma_at(s7, keys, k7 + d, x)
        store_eight(scores, j * lanes, lanes, s0, s1, s2, s3, s4, s5, s6, s7)


@callee
def _score_four(keys, offsets, j, dim, of_tile, like):
    (queries, at, scores), lanes = of_tile, width(like)
    k0, k1, k2, k3 = offsets[j], offsets[j + 1], offsets[j + 2], offsets[j + 3]
    s0 = s1 = s2 = s3 = like
    for d in range(dim):
        x = load(queries, at + d * lanes, s0)
        s0 = fma_at(s0, keys, k0 + d, x)
        s1 = fma_at(s1, keys, k1 + d, x)
        s2 = fma_at(s2, keys, k2 + d, x)
        s3 = fma_at(s3, keys, k3 + d, x)
    store_four(scores, j * lanes, lanes, s0, s1, s2, s3)


@callee
def _softmax_step(scores, num, row_max, row_sum, tile, of_weights, like):
    """One step of online softmax: scores become weights relative to the new row maximum; rescales:
    the factors for earlier results."""
    old_max = most = load(row_max, tile, like)
    lanes, (rescales, kind) = width(like), of_weights
    for j in range(num):
        most = larger(most, load(scores, j * lanes, most))
    new_max = row_max_for(most, kind)
    rescale = exp2(minus(old_max, new_max))
    block_sum = like  # small weights added one by one to a large sum would be lost
    for j in range(num):
        weight = weight_for(minus(load(scores, j * lanes, new_max), new_max), kind)
        block_sum = plus(block_sum, weight)
        store(scores, j * lanes, rounded_weight(weight, kind))
    store(row_max, tile, new_max)
    store(row_sum, tile, fma(block_sum, load(row_sum, tile, new_max), rescale))
    store(rescales, 0, rescale)


@callee
def _accumulate_values(values, offsets, num, dim, of_rows, at):
    """acc [lanes, dim] of eight queries: rescaled, plus the values by their weights."""
    weights, lanes, rescales, acc, lane = of_rows
    later, d = (weights, lanes, rescales, acc, lane + 4), 0
    while LANES > WIDE and d + LANES <= dim:
        _accumulate_four(values, offsets, num, dim, of_rows, at, d, _most())
        _accumulate_four(values, offsets, num, dim, later, at + 4 * dim, d, _most())
        d += LANES
    while d + WIDE <= dim:
        _accumulate_columns(values, offsets, num, dim, of_rows, at, d, wide())
        d += WIDE
    while d + NARROW <= dim:
        _accumulate_columns(values, offsets, num, dim, of_rows, at, d, narrow())
        d += NARROW
    while d < dim:
        _accumulate_columns(values, offsets, num, dim, of_rows, at, d, single())
        d += 1


@callee
def _accumulate_columns(values, offsets, num, dim, of_rows, at, d, like):
    """The same for as many columns from d on as a vector like `like` has."""
    weights, lanes, rescales, acc, lane = of_rows
    at += d
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = like
    for j in range(num):
        x, i = load(values, offsets[j] + d, like), j * lanes + lane
        m0 = fma_at(m0, weights, i, x)
        m1 = fma_at(m1, weights, i + 1, x)
        m2 = fma_at(m2, weights, i + 2, x)
        m3 = fma_at(m3, weights, i + 3, x)
        m4 = fma_at(m4, weights, i + 4, x)
        m5 = fma_at(m5, weights, i + 5, x)
        m6 = fma_at(m6, weights, i + 6, x)
        m7 = fma_at(m7, weights, i + 7, x)
    add_four(acc, at, dim, rescales, lane, m0, m1, m2, m3)
    add_four(acc, at + 4 * dim, dim, rescales, lane + 4, m4, m5, m6, m7)


@callee
def _accumulate_four(values, offsets, num, dim, of_rows, at, d, like):
    """The same for four queries."""
    weights, lanes, rescales, acc, lane = of_rows
    at += d
    m0 = m1 = m2 = m3 = like
    for j in range(num):
        x, i = load(values, offsets[j] + d, like), j * lanes + lane
        m0 = fma_at(m0, weights, i, x)
        m1 = fma_at(m1, weights, i + 1, x)
        m2 = fma_at(m2, weights, i + 2, x)
        m3 = fma_at(m3, weights, i + 3, x)
    add_four(acc, at, dim, rescales, lane, m0, m1, m2, m3)


@callee
def _are_paired(array, dim):
    """Whether keys and values of such heads are multiplied in pairs."""
    return pairs.is_bf16(array) and dim % FEW == 0


@callee
def _leave(numbers, num, array, dim, like):
    """Numbers as they are: nothing is multiplied in pairs."""


@callee
def _pair_up_some(queries, num_tiles, keys, dim, like):
    if _are_paired(keys, dim):
        pair_up(queries, num_tiles, dim, like)


@callee
def _pair_up_some_weights(weights, num, values, dim, like):
    if _are_paired(values, dim):
        pair_up_weights(weights, num, like)


@callee
def _score_some(keys, values, offsets, soon, num, dim, of_tile, like):
    if not _are_paired(keys, dim):
        _score(keys, values, offsets, soon, num, dim, of_tile, like)
        return
    for j in range(0, num, _ROWS):
        if width(like) < LANES and of_tile[1] == 0:
            _fetch(keys, values, soon, j, dim)
        score_four_pairs(keys, offsets, j, dim, of_tile, like)
        score_four_pairs(keys, offsets, j + 4, dim, of_tile, like)


@callee
def _accumulate_some(values, offsets, num, dim, of_rows, at):
    if not _are_paired(values, dim):
        _accumulate_values(values, offsets, num, dim, of_rows, at)
        return
    d = accumulate_pairs(values, offsets, num, dim, of_rows, at, 0, wide())
    accumulate_pairs(values, offsets, num, dim, of_rows, at, d, few())


# Other processors have no instruction for pairs: code for them must not have it either.
_pair_up = _pair_up_some if _HAS_PAIRS else _leave
_pair_up_weights = _pair_up_some_weights if _HAS_PAIRS else _leave
_score_tile = _score_some if _HAS_PAIRS else _score
_accumulate = _accumulate_some if _HAS_PAIRS else _accumulate_values
