"""What the extend attention loops share: tiles of queries, one query to a lane, and blocks of keys.
Needs numba."""

from __future__ import annotations

import numpy as np

from ..jit.attention_lanes import width
from ..jit.callees import callee
from ..jit.pairs import add_pair_at, paired
from ..jit.vectors import fma, load, mask_range, spread, store, tanh, times

BLOCK = 64  # keys of a block
LOWEST = np.float32(-3e38)  # below all scores; -inf would give NaN where every key is masked
_LOG2 = np.float32(np.log(2))


@callee
def key_offsets(offsets, slots, at, end, base, dim):
    """Where the keys of a block begin; behind the last key, it is repeated."""
    for j in range(BLOCK):
        offsets[j] = (base + slots[min(at + j, end - 1)]) * dim


@callee
def longest(bounds, least, least_not):
    """Tokens of the longest sequence that is not skipped."""
    most = 0
    for s in range(len(bounds) - 1):
        num = bounds[s + 1] - bounds[s]
        if least <= num < least_not:
            most = max(most, num)
    return most


@callee
def visible_ranges(lows, highs, first, begin, end, window, of_tiles, like):
    """The range low:high of keys that each query sees."""
    (start, used, _, _, group), lanes = of_tiles, width(like)
    up_to, head = begin + start // group + 1, start % group
    for i in range((used + lanes - 1) // lanes * lanes):
        lows[i], highs[i] = max(first, up_to - window), min(end, up_to)
        head += 1
        if head == group and i + 1 < used:
            up_to, head = up_to + 1, 0


@callee
def finalize(row_max, row_sum, old_lse, is_merged):
    """From a query's row_max and row_sum: the log-sum-exp of its scores, merged with the old one if
    is_merged, and the factors of its acc and of the old output."""
    lse = (row_max + np.log2(row_sum)) * _LOG2
    scale, old_scale = np.float32(1) / row_sum, np.float32(0)
    if is_merged:
        old_scale = np.float32(1) / (np.float32(1) + np.exp(lse - old_lse))
        scale *= np.float32(1) - old_scale
        most = max(lse, old_lse)
        lse = most + np.log(np.exp(lse - most) + np.exp(old_lse - most))
    return lse, scale, old_scale


@callee
def apply_softcap(scores, num, cap, like):
    """cap * tanh(score / cap)."""
    bound, inverse = spread(np.float32(cap), like), spread(np.float32(1 / cap), like)
    lanes = width(like)
    for j in range(num):
        x = load(scores, j * lanes, bound)
        store(scores, j * lanes, times(bound, tanh(times(x, inverse))))


@callee
def mask_scores(scores, num, lows, highs, tile, start, like):
    """Set scores of the keys start:start + num to -inf where a query does not see the key."""
    low, high = load(lows, tile, like), load(highs, tile, like)
    lanes = width(like)
    for j in range(num):
        x = load(scores, j * lanes, low)
        store(scores, j * lanes, mask_range(x, low, high, np.float32(start + j)))


@callee
def store_eight(array, at, step, x0, x1, x2, x3, x4, x5, x6, x7):
    store_four(array, at, step, x0, x1, x2, x3)
    store_four(array, at + 4 * step, step, x4, x5, x6, x7)


@callee
def store_four(array, at, step, x0, x1, x2, x3):
    store(array, at, x0)
    store(array, at + step, x1)
    store(array, at + 2 * step, x2)
    store(array, at + 3 * step, x3)


@callee
def add_four(acc, at, dim, rescales, lane, x0, x1, x2, x3):
    """What a block adds to the results of four queries from a lane on, which are rescaled."""
    x0 = _rescale_add(acc, at, rescales[lane], x0)
    x1 = _rescale_add(acc, at + dim, rescales[lane + 1], x1)
    x2 = _rescale_add(acc, at + 2 * dim, rescales[lane + 2], x2)
    x3 = _rescale_add(acc, at + 3 * dim, rescales[lane + 3], x3)
    store_four(acc, at, dim, x0, x1, x2, x3)


@callee
def _rescale_add(acc, at, rescale, x):
    return fma(x, load(acc, at, x), spread(rescale, x))


# The same of bfloat16 keys and values by products of pairs (`jit.pairs`), for heads with a multiple
# of FEW dimensions.


@callee
def pair_up(queries, num_tiles, dim, like):
    """queries: [tiles, dim, lanes] -> [tiles, dim / 2, lanes] pairs of neighbouring numbers of a
    query, in the same memory."""
    lanes = width(like)
    for i in range(num_tiles * dim // 2):
        x, y = load(queries, 2 * i * lanes, like), load(queries, (2 * i + 1) * lanes, like)
        store(queries, i * lanes, paired(x, y))


@callee
def pair_up_weights(weights, num, like):
    """weights: [keys, lanes] -> [keys / 2, lanes] pairs of neighbouring keys, in the same memory;
    behind an odd last one is a zero."""
    lanes = width(like)
    for i in range((num + 1) // 2):
        x, y = load(weights, 2 * i * lanes, like), like
        if 2 * i + 1 < num:
            y = load(weights, (2 * i + 1) * lanes, like)
        store(weights, i * lanes, paired(x, y))


@callee
def score_four_pairs(keys, offsets, j, dim, of_tile, like):
    """Scores [4, lanes] of a tile of paired queries, which begins at half the index."""
    (queries, at, scores), lanes = of_tile, width(like)
    k0, k1, k2, k3 = offsets[j], offsets[j + 1], offsets[j + 2], offsets[j + 3]
    s0 = s1 = s2 = s3 = like
    for d in range(0, dim, 2):
        x = load(queries, (at + d * lanes) // 2, s0)
        s0 = add_pair_at(s0, keys, k0 + d, x)
        s1 = add_pair_at(s1, keys, k1 + d, x)
        s2 = add_pair_at(s2, keys, k2 + d, x)
        s3 = add_pair_at(s3, keys, k3 + d, x)
    store_four(scores, j * lanes, lanes, s0, s1, s2, s3)


@callee
def accumulate_pairs(values, offsets, num, dim, of_rows, at, d, like):
    """acc [8 queries, dim], rescaled, plus the values by their weights in pairs: from column d on,
    as many at a time as `like` has lanes, while there are as many. Gives the column behind."""
    while d + width(like) <= dim:
        _accumulate_columns_of_pairs(values, offsets, num, dim, of_rows, at, d, like)
        d += width(like)
    return d


@callee
def _accumulate_columns_of_pairs(values, offsets, num, dim, of_rows, at, d, like):
    weights, lanes, rescales, acc, lane = of_rows
    at += d
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = like
    for j in range(0, num, 2):  # a last single key is read twice; its second weight is zero
        x = load(values, offsets[j] + d, like)
        x = paired(x, load(values, offsets[min(j + 1, num - 1)] + d, like))
        i = j // 2 * lanes + lane
        m0 = add_pair_at(m0, weights, i, x)
        m1 = add_pair_at(m1, weights, i + 1, x)
        m2 = add_pair_at(m2, weights, i + 2, x)
        m3 = add_pair_at(m3, weights, i + 3, x)
        m4 = add_pair_at(m4, weights, i + 4, x)
        m5 = add_pair_at(m5, weights, i + 5, x)
        m6 = add_pair_at(m6, weights, i + 6, x)
        m7 = add_pair_at(m7, weights, i + 7, x)
    add_four(acc, at, dim, rescales, lane, m0, m1, m2, m3)
    add_four(acc, at + 4 * dim, dim, rescales, lane + 4, m4, m5, m6, m7)
