"""Attention of single tokens over keys in any slots, read where they lie: compiled loops.

Two heads of a group at a time meet blocks of keys, and the softmax goes on from block to block;
meanwhile the next block is fetched, so that keys and values are read as fast as memory gives them.
Only for float32 on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .vectors import (
    NARROW,
    WIDE,
    exp2,
    fetch_far,
    highest,
    larger,
    load,
    minus,
    narrow,
    plus,
    plus_product_at,
    plus_products,
    single,
    spread,
    store,
    summed,
    tanh,
    times,
    wide,
)

LANES = WIDE
BLOCK = 64  # keys of a block: so many that the next one's come in time
_ROWS = 4  # keys that meet two heads at a time
_LINE = 16  # numbers that a cache fetches at a time
_LOWEST = np.float32(-3e38)  # stands below all scores; -inf would leave NaN where nothing is seen
_LOG2 = np.float32(np.log(2))
_INTS = "int32[::1]"
SIGNATURE = (
    "void(float32[:, :, :], float32[:, :, ::1], float32[::1], float32[:, :, ::1], float32[:, ::1],"
    f" int64[::1], int32[:, ::1], {_INTS}, {_INTS}, {_INTS}, float32, float32, int64, int64)"
)
_compiled = njit(error_model="numpy", nogil=True)


def attend(
    q, keys, values, out, total, tokens, table, rows, firsts, ends, scale, cap, start, stop
):  # fmt: skip
    """The tokens tokens[start:stop] of q [tokens, heads, dim], each over the keys firsts:ends in
    the slots of its row of the table.

    keys: [kv_heads, slots, dim]; values: [kv_heads * slots * dim] of the same. scale: of scores in
    powers of two. cap: softcap of these; 0: none. Writes the same tokens of out [tokens, heads,
    dim] and of total [tokens, heads], the log-sum-exp of the scores.
    """
    num_kv_heads, num_slots, dim = keys.shape
    group, keys_flat = q.shape[1] // num_kv_heads, keys.reshape(-1)
    even = group + group % 2
    queries, mixed = np.empty(even * dim, np.float32), np.empty(even * dim, np.float32)
    peaks, sums = np.empty(even, np.float32), np.empty(even * LANES, np.float32)
    scores = np.empty(2 * BLOCK, np.float32)
    places, nexts = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for i in range(start, stop):
        slots, first, end = table[rows[i]], firsts[i], ends[i]
        for kv_head in range(num_kv_heads):
            base = kv_head * num_slots
            _pack(q, tokens[i], kv_head * group, group, scale, queries)
            mixed[:] = 0
            peaks[:] = _LOWEST
            sums[:] = 0
            size = _size(end - first)
            _find(places, slots, first, end, size, base, dim)
            for at in range(first, end, size):
                num, soon = min(size, end - at), size
                if at + size < end:
                    _find(nexts, slots, at + size, end, size, base, dim)
                elif kv_head + 1 < num_kv_heads:
                    _find(nexts, slots, first, end, size, base + num_slots, dim)
                elif i + 1 < stop:
                    soon = _size(ends[i + 1] - firsts[i + 1])
                    _find(nexts, table[rows[i + 1]], firsts[i + 1], ends[i + 1], soon, 0, dim)
                else:
                    soon = 0
                for head in range(0, group, 2):
                    ahead = nexts[:soon] if head == 0 else nexts[:0]
                    _score(keys_flat, places, ahead, num, dim, queries, head * dim, scores)
                    if cap > 0:
                        _bend(scores, cap)
                    worth = _soften(scores, num, peaks, sums, head)
                    other = _soften(scores[BLOCK:], num, peaks, sums, head + 1)
                    _mix(values, places, ahead, num, dim, (scores, worth, other), mixed, head * dim)
                places, nexts = nexts, places
            _unpack(mixed, peaks, sums, out, total, tokens[i], kv_head * group, group)


@_compiled
def _pack(q, token, first_head, group, scale, queries):
    """queries: [heads, dim], scaled; an odd number of heads has its last one twice."""
    dim = q.shape[2]
    for i in range(group + group % 2):
        head = first_head + min(i, group - 1)
        for d in range(dim):
            queries[i * dim + d] = q[token, head, d] * scale


@_compiled
def _size(num):
    """Keys of a block, in blocks that are about equal: each has the time to fetch the next one."""
    if num <= BLOCK:
        return BLOCK
    blocks = (num + BLOCK - 1) // BLOCK
    return ((num + blocks - 1) // blocks + _ROWS - 1) // _ROWS * _ROWS


@_compiled
def _find(places, slots, at, end, size, base, dim):
    """Where the keys of a block begin; the last one stands for those behind it."""
    num = min(size, end - at)
    for j in range(num):
        places[j] = (base + slots[at + j]) * dim
    for j in range(num, size):
        places[j] = places[num - 1]


@_compiled
def _fetch(numbers, places, first, end, dim):
    """Rows that are read soon."""
    for j in range(first, min(end, len(places))):
        for d in range(0, dim, _LINE):
            fetch_far(numbers, places[j] + d)


@_compiled
def _score(keys, places, soon, num, dim, queries, at, scores):
    """scores [2, block] of two heads; behind the last key, those of keys unasked."""
    whole = dim // WIDE * WIDE
    most = whole + (dim - whole) // NARROW * NARROW
    _fetch(keys, soon, num, BLOCK, dim)
    for j in range(0, num, _ROWS):
        _fetch(keys, soon, j, j + _ROWS, dim)
        _score_columns(keys, places, j, 0, whole, dim, queries, at, scores, wide(), WIDE)
        if most > whole:
            _score_columns(keys, places, j, whole, most, dim, queries, at, scores, narrow(), NARROW)
        if dim > most:
            _score_columns(keys, places, j, most, dim, dim, queries, at, scores, single(), 1)


@_compiled
def _score_columns(keys, places, j, first, end, dim, queries, at, scores, like, width):
    """The part of the columns first:end, by vectors like `like`."""
    k0, k1, k2, k3 = places[j], places[j + 1], places[j + 2], places[j + 3]
    s0 = s1 = s2 = s3 = o0 = o1 = o2 = o3 = like
    for d in range(first, end, width):
        x, y = load(queries, at + d, like), load(queries, at + dim + d, like)
        key = load(keys, k0 + d, like)
        s0, o0 = plus_products(s0, key, x), plus_products(o0, key, y)
        key = load(keys, k1 + d, like)
        s1, o1 = plus_products(s1, key, x), plus_products(o1, key, y)
        key = load(keys, k2 + d, like)
        s2, o2 = plus_products(s2, key, x), plus_products(o2, key, y)
        key = load(keys, k3 + d, like)
        s3, o3 = plus_products(s3, key, x), plus_products(o3, key, y)
    is_first, i = first == 0, j + BLOCK
    _put(scores, j, summed(s0), summed(s1), summed(s2), summed(s3), is_first)
    _put(scores, i, summed(o0), summed(o1), summed(o2), summed(o3), is_first)


@_compiled
def _put(scores, j, s0, s1, s2, s3, is_first):
    if is_first:
        scores[j], scores[j + 1], scores[j + 2], scores[j + 3] = s0, s1, s2, s3
    else:
        scores[j] += s0
        scores[j + 1] += s1
        scores[j + 2] += s2
        scores[j + 3] += s3


@_compiled
def _bend(scores, cap):
    """Softcap: cap * tanh(score / cap)."""
    bound, share = spread(np.float32(cap), wide()), spread(np.float32(1 / cap), wide())
    for j in range(0, 2 * BLOCK, LANES):
        x = load(scores, j, bound)
        store(scores, j, times(bound, tanh(times(x, share))))


@_compiled
def _soften(scores, num, peaks, sums, head):
    """Scores of a head to powers below the highest so far; what those before are worth now."""
    for j in range(num, BLOCK):
        scores[j] = -np.inf
    most = spread(peaks[head], wide())
    for j in range(0, BLOCK, LANES):
        most = larger(most, load(scores, j, most))
    peak = highest(most)
    worth = exp2(spread(peaks[head] - peak, most))
    total = times(load(sums, head * LANES, most), worth)
    for j in range(0, BLOCK, LANES):
        power = exp2(minus(load(scores, j, most), spread(peak, most)))
        total = plus(total, power)
        store(scores, j, power)
    store(sums, head * LANES, total)
    peaks[head] = peak
    return highest(worth)


@_compiled
def _mix(values, places, soon, num, dim, of_powers, mixed, at):
    """mixed [2, dim]: what it was for two heads, decayed, and the values by their powers."""
    of_block, d = (places, soon, num, dim), 0
    while d + WIDE <= dim:
        _mix_columns(values, of_block, of_powers, mixed, at, d, wide(), WIDE)
        d += WIDE
    while d + NARROW <= dim:
        _mix_columns(values, of_block, of_powers, mixed, at, d, narrow(), NARROW)
        d += NARROW
    while d < dim:
        _mix_columns(values, of_block, of_powers, mixed, at, d, single(), 1)
        d += 1


@_compiled
def _mix_columns(values, of_block, of_powers, mixed, at, d, like, width):
    """The same for the columns d:d + width, by vectors like `like`; powers behind the last key are
    zero."""
    (places, soon, num, dim), (powers, worth, other) = of_block, of_powers
    at += d
    m0 = times(load(mixed, at, like), spread(worth, like))
    m1 = times(load(mixed, at + dim, like), spread(other, like))
    n0 = n1 = like
    for j in range(0, num, 2):
        for i in range(j, min(j + 2, len(soon))):
            for line in range(0, width, _LINE):
                fetch_far(values, soon[i] + d + line)
        x, y = load(values, places[j] + d, like), load(values, places[j + 1] + d, like)
        m0 = plus_product_at(m0, powers, j, x)
        m1 = plus_product_at(m1, powers, BLOCK + j, x)
        n0 = plus_product_at(n0, powers, j + 1, y)
        n1 = plus_product_at(n1, powers, BLOCK + j + 1, y)
    store(mixed, at, plus(m0, n0))
    store(mixed, at + dim, plus(m1, n1))


@_compiled
def _unpack(mixed, peaks, sums, out, total, token, first_head, group):
    dim = out.shape[2]
    for i in range(group):
        whole = summed(load(sums, i * LANES, wide()))
        share = np.float32(1) / whole
        for d in range(dim):
            out[token, first_head + i, d] = mixed[i * dim + d] * share
        total[token, first_head + i] = (peaks[i] + np.log2(whole)) * _LOG2
