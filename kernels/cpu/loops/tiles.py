"""Attention of many queries over keys in any slots, read where they lie: compiled loops.

Tiles of queries, one to a lane, meet blocks of keys, and the softmax goes on from block to block
(as in FlashAttention). The heads of a group and their tokens stand side by side in a tile, so that
a key is loaded once for all. Keys are float32 numbers, or the bits of bfloat16 ones. Needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from ..jit.attention_lanes import FEW, SQUARE, few, turn, width
from ..jit.rounding import peak_for, rounded_for, rounded_weight, weight_for
from ..jit.spots import zero
from ..jit.vectors import (
    NARROW,
    REGISTERS,
    WIDE,
    exp2,
    fetch_far,
    larger,
    load,
    minus,
    narrow,
    plus,
    plus_product_at,
    plus_products,
    seen,
    single,
    spread,
    store,
    tanh,
    times,
    wide,
    zeros,
)

LANES = min(REGISTERS // 8, 32)  # queries of a tile; FEW where there are no more
BLOCK = 64  # keys of a block
MOST_TILES = 256 // LANES  # tiles that a block is read for, while it is in a near cache
_MOST_FEW = 3 * FEW  # queries up to which a tile half empty costs more than a small one
_ROWS = 8  # sums at a time
_LINE = 16  # numbers that a cache fetches at a time
LOWEST = np.float32(-3e38)  # stands below all scores; -inf would leave NaN where nothing is seen
_LOG2 = np.float32(np.log(2))
_INTS = "int32[::1]"
_SIGNATURE = (
    "void(float32[:, :, :], {0}[:, :, ::1], {0}[::1], float32[:, :, ::1], float32[:, ::1],"
    f" int32[:, ::1], {_INTS}, {_INTS}, {_INTS}, {_INTS}, int64[::1], int64, float32, float32,"
    " int64, int64[::1], boolean, int64, int64, int64, int64)"
)
SIGNATURES = {"float32": _SIGNATURE.format("float32"), "bfloat16": _SIGNATURE.format("uint16")}
_compiled, _most = njit(error_model="numpy", nogil=True), zeros(LANES)


def attend(
    q, keys, values, out, total, table, rows, firsts, starts, ends, bounds, window, scale, cap,
    num_tiles, tokens, is_merged, least, least_not, part, num_parts,
):  # fmt: skip
    """The tokens tokens[bounds[s]:bounds[s + 1]] of q [tokens, heads, dim] at positions from
    starts[s] on, for each sequence s, over the keys firsts[s]:ends[s] in the slots of row rows[s]
    of the table. A token sees the last `window` keys up to itself.

    keys: [kv_heads, slots, dim]; values: [kv_heads * slots * dim] of the same. scale: of scores in
    powers of two. cap: softcap of these; 0: none. num_tiles: that share a reading of keys. Of all
    such groups of tiles, this does each num_parts-th. Sequences of less than `least` tokens are
    passed over, and of `least_not` or more. Writes the same tokens of out [tokens, heads,
    dim] and of total [tokens, heads], the log-sum-exp of the scores; is_merged: adds these keys to
    those that are behind what stands there.
    """
    settings = window, scale, cap, num_tiles * LANES, is_merged, least, least_not, part, num_parts
    of_keys, of_part = (table, rows, firsts, ends), (starts, bounds, tokens)
    most = longest(bounds, least, least_not) * (q.shape[1] // keys.shape[0])
    if most <= _MOST_FEW and 0 < most % LANES <= FEW < LANES:
        _attend(q, keys, values, out, total, of_keys, of_part, settings, few())
    else:
        _attend(q, keys, values, out, total, of_keys, of_part, settings, _most())


@_compiled
def _attend(q, keys, values, out, total, of_keys, of_part, settings, like):
    """In tiles of as many queries as a vector like `like` has lanes."""
    table, rows, firsts, ends = of_keys
    starts, bounds, tokens = of_part
    window, scale, cap, most, is_merged, least, least_not, part, num_parts = settings
    lanes = width(like)
    num_kv_heads, num_slots, dim = keys.shape
    group, keys_flat, kind = q.shape[1] // num_kv_heads, keys.reshape(-1), zero(keys)
    longest_one = longest(bounds, least, least_not) * group
    most = min(most, (longest_one + lanes - 1) // lanes * lanes)
    queries, mixed = np.empty(most * dim, np.float32), np.empty(most * dim, np.float32)
    peaks, sums = np.empty(most, np.float32), np.empty(most, np.float32)
    lows, highs = np.empty(most, np.float32), np.empty(most, np.float32)
    scores, decay = np.empty(BLOCK * lanes, np.float32), np.empty(lanes, np.float32)
    places, soon = np.zeros(BLOCK, np.int64), np.zeros(BLOCK, np.int64)
    rest, count = np.empty(SQUARE * dim, np.float32), 0
    for s in range(len(rows)):
        slots, num_tokens = table[rows[s]], bounds[s + 1] - bounds[s]
        if not least <= num_tokens < least_not:
            continue
        num_queries = num_tokens * group
        for kv_head in range(num_kv_heads):
            for start in range(0, num_queries, most):
                count += 1
                if count % num_parts != part:
                    continue
                used = min(most, num_queries - start)
                of_tiles = start, used, bounds[s], kv_head * group, group
                _pack(q, tokens, queries, rest, (scale, kind), of_tiles, like)
                look(lows, highs, firsts[s], starts[s], ends[s], window, of_tiles, like)
                mixed[:] = 0
                peaks[:] = LOWEST
                sums[:] = 0
                stop, base = int(highs[used - 1]), kv_head * num_slots
                begun = firsts[s] + (int(lows[0]) - firsts[s]) // BLOCK * BLOCK  # as for all tokens
                for at in range(begun, stop, BLOCK):
                    num_keys = min(BLOCK, stop - at)
                    if lanes < LANES and at + BLOCK < stop:
                        find(soon, slots, at + BLOCK, stop, base, dim)
                    elif lanes < LANES and kv_head + 1 < num_kv_heads:
                        find(soon, slots, begun, stop, base + num_slots, dim)
                    if lanes == LANES or at == begun:
                        find(places, slots, at, stop, base, dim)
                    for tile in range(0, used, lanes):
                        last = tile + lanes - 1
                        num = min(num_keys, int(highs[last]) - at)
                        if num <= 0 or at + num <= lows[tile]:
                            continue
                        of_tile = queries, tile * dim, scores
                        _score(keys_flat, values, places, soon, num, dim, of_tile, like)
                        if cap > 0:
                            bend(scores, num, cap, like)
                        if at < lows[last] or at + num > highs[tile]:
                            hide(scores, num, lows, highs, tile, at, like)
                        _soften(scores, num, peaks, sums, tile, (decay, kind), like)
                        for lane in range(0, min(lanes, used - tile), _ROWS):
                            of_rows = scores, lanes, decay, mixed, lane
                            _mix(values, places, num, dim, of_rows, (tile + lane) * dim)
                    if lanes < LANES:
                        places[:] = soon
                _unpack(mixed, peaks, sums, out, total, tokens, is_merged, of_tiles)


@_compiled
def find(places, slots, at, end, base, dim):
    """Where the keys of a block begin; the last one stands for those behind it."""
    for j in range(BLOCK):
        places[j] = (base + slots[min(at + j, end - 1)]) * dim


@_compiled
def _fetch(keys, values, soon, first, dim):
    """Rows that are read soon."""
    for j in range(first, first + _ROWS):
        for d in range(0, dim, _LINE):
            fetch_far(keys, soon[j] + d)
            fetch_far(values, soon[j] + d)


@_compiled
def longest(bounds, least, least_not):
    """Tokens of the longest sequence of those that are not passed over."""
    most = 0
    for s in range(len(bounds) - 1):
        num = bounds[s + 1] - bounds[s]
        if least <= num < least_not:
            most = max(most, num)
    return most


@_compiled
def _pack(q, tokens, queries, rows, of_scores, of_tiles, like):
    """queries: [tiles, dim, lanes], scaled; the last query fills up its tile. rows: room for
    [SQUARE, dim]."""
    (start, used, first, first_head, group), (scale, kind) = of_tiles, of_scores
    dim, lanes, share, one = q.shape[2], width(like), spread(scale, narrow()), single()
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
            store(rows, row * dim + d, rounded_for(times(load(q, source + d, share), share), kind))
        if row == SQUARE - 1:
            at = i // lanes * lanes * dim + i % lanes - row
            for d in range(0, dim, SQUARE):
                turn(rows, d, dim, queries, at + d * lanes, lanes)


@_compiled
def look(lows, highs, first, begin, end, window, of_tiles, like):
    """Which keys low:high each query sees."""
    (start, used, _, _, group), lanes = of_tiles, width(like)
    up_to, head = begin + start // group + 1, start % group
    for i in range((used + lanes - 1) // lanes * lanes):
        lows[i], highs[i] = max(first, up_to - window), min(end, up_to)
        head += 1
        if head == group and i + 1 < used:
            up_to, head = up_to + 1, 0


@_compiled
def _unpack(mixed, peaks, sums, out, total, tokens, is_merged, of_tiles):
    start, used, first, first_head, group = of_tiles
    dim = out.shape[2]
    for i in range(used):
        t, head = tokens[first + (start + i) // group], first_head + (start + i) % group
        total[t, head], share, kept = settle(peaks[i], sums[i], total[t, head], is_merged)
        for d in range(dim):
            before = out[t, head, d] * kept if is_merged else np.float32(0)
            out[t, head, d] = before + mixed[i * dim + d] * share


@_compiled
def settle(peak, powers, total, is_merged):
    """The log-sum-exp of a query's scores, joined with the total before where it is merged; and by
    how much its mixed values count, and what was there."""
    new = (peak + np.log2(powers)) * _LOG2
    share, kept = np.float32(1) / powers, np.float32(0)
    if is_merged:
        kept = np.float32(1) / (np.float32(1) + np.exp(new - total))
        share *= np.float32(1) - kept
        most = max(new, total)
        new = most + np.log(np.exp(new - most) + np.exp(total - most))
    return new, share, kept


@_compiled
def _score(keys, values, places, soon, num, dim, of_tile, like):
    """scores [keys, lanes], eight keys at a time; behind the last key, those of keys unasked."""
    (queries, at, scores), lanes = of_tile, width(like)
    for j in range(0, num, _ROWS):
        if lanes < LANES and at == 0:  # more queries hide what reading takes
            _fetch(keys, values, soon, j, dim)
        if lanes > WIDE:  # a register of sums more for each key: four keys fill half of all
            _score_four(keys, places, j, dim, of_tile, like)
            _score_four(keys, places, j + 4, dim, of_tile, like)
            continue
        k0, k1, k2, k3 = places[j], places[j + 1], places[j + 2], places[j + 3]
        k4, k5, k6, k7 = places[j + 4], places[j + 5], places[j + 6], places[j + 7]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = like
        for d in range(dim):
            x = load(queries, at + d * lanes, s0)
            s0 = plus_product_at(s0, keys, k0 + d, x)
            s1 = plus_product_at(s1, keys, k1 + d, x)
            s2 = plus_product_at(s2, keys, k2 + d, x)
            s3 = plus_product_at(s3, keys, k3 + d, x)
            s4 = plus_product_at(s4, keys, k4 + d, x)
            s5 = plus_product_at(s5, keys, k5 + d, x)
            s6 = plus_product_at(s6, keys, k6 + d, x)
            s7 = plus_product_at(s7, keys, k7 + d, x)
        _put_rows(scores, j * lanes, lanes, s0, s1, s2, s3, s4, s5, s6, s7)


@_compiled
def _score_four(keys, places, j, dim, of_tile, like):
    (queries, at, scores), lanes = of_tile, width(like)
    k0, k1, k2, k3 = places[j], places[j + 1], places[j + 2], places[j + 3]
    s0 = s1 = s2 = s3 = like
    for d in range(dim):
        x = load(queries, at + d * lanes, s0)
        s0 = plus_product_at(s0, keys, k0 + d, x)
        s1 = plus_product_at(s1, keys, k1 + d, x)
        s2 = plus_product_at(s2, keys, k2 + d, x)
        s3 = plus_product_at(s3, keys, k3 + d, x)
    _put_four(scores, j * lanes, lanes, s0, s1, s2, s3)


@_compiled
def bend(scores, num, cap, like):
    """Softcap: cap * tanh(score / cap)."""
    bound, share = spread(np.float32(cap), like), spread(np.float32(1 / cap), like)
    lanes = width(like)
    for j in range(num):
        x = load(scores, j * lanes, bound)
        store(scores, j * lanes, times(bound, tanh(times(x, share))))


@_compiled
def hide(scores, num, lows, highs, tile, start, like):
    """-inf where a query does not see a key; those of the scores are start:start + num."""
    low, high = load(lows, tile, like), load(highs, tile, like)
    lanes = width(like)
    for j in range(num):
        x = load(scores, j * lanes, low)
        store(scores, j * lanes, seen(x, low, high, np.float32(start + j)))


@_compiled
def _soften(scores, num, peaks, sums, tile, of_powers, like):
    """Scores to powers below the highest so far; decay: what those before are worth now."""
    before = most = load(peaks, tile, like)
    lanes, (decay, kind) = width(like), of_powers
    for j in range(num):
        most = larger(most, load(scores, j * lanes, most))
    peak = peak_for(most, kind)
    worth = exp2(minus(before, peak))
    total = like  # of this block: many small powers would be lost one by one beside a large sum
    for j in range(num):
        power = weight_for(minus(load(scores, j * lanes, peak), peak), kind)
        total = plus(total, power)
        store(scores, j * lanes, rounded_weight(power, kind))
    store(peaks, tile, peak)
    store(sums, tile, plus_products(total, load(sums, tile, peak), worth))
    store(decay, 0, worth)


@_compiled
def _mix(values, places, num, dim, of_rows, at):
    """mixed [lanes, dim]: what eight of them were, decayed, and the values by their powers."""
    powers, lanes, decay, mixed, lane = of_rows
    later, d = (powers, lanes, decay, mixed, lane + 4), 0
    while LANES > WIDE and d + LANES <= dim:
        _mix_four(values, places, num, dim, of_rows, at, d, _most())
        _mix_four(values, places, num, dim, later, at + 4 * dim, d, _most())
        d += LANES
    while d + WIDE <= dim:
        _mix_columns(values, places, num, dim, of_rows, at, d, wide())
        d += WIDE
    while d + NARROW <= dim:
        _mix_columns(values, places, num, dim, of_rows, at, d, narrow())
        d += NARROW
    while d < dim:
        _mix_columns(values, places, num, dim, of_rows, at, d, single())
        d += 1


@_compiled
def _mix_columns(values, places, num, dim, of_rows, at, d, like):
    """The same for as many columns from d on as a vector like `like` has."""
    powers, lanes, decay, mixed, lane = of_rows
    at += d
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = like
    for j in range(num):
        x, i = load(values, places[j] + d, like), j * lanes + lane
        m0 = plus_product_at(m0, powers, i, x)
        m1 = plus_product_at(m1, powers, i + 1, x)
        m2 = plus_product_at(m2, powers, i + 2, x)
        m3 = plus_product_at(m3, powers, i + 3, x)
        m4 = plus_product_at(m4, powers, i + 4, x)
        m5 = plus_product_at(m5, powers, i + 5, x)
        m6 = plus_product_at(m6, powers, i + 6, x)
        m7 = plus_product_at(m7, powers, i + 7, x)
    m0 = _with(mixed, at, decay[lane], m0)
    m1 = _with(mixed, at + dim, decay[lane + 1], m1)
    m2 = _with(mixed, at + 2 * dim, decay[lane + 2], m2)
    m3 = _with(mixed, at + 3 * dim, decay[lane + 3], m3)
    m4 = _with(mixed, at + 4 * dim, decay[lane + 4], m4)
    m5 = _with(mixed, at + 5 * dim, decay[lane + 5], m5)
    m6 = _with(mixed, at + 6 * dim, decay[lane + 6], m6)
    m7 = _with(mixed, at + 7 * dim, decay[lane + 7], m7)
    _put_rows(mixed, at, dim, m0, m1, m2, m3, m4, m5, m6, m7)


@_compiled
def _mix_four(values, places, num, dim, of_rows, at, d, like):
    """The same for four queries."""
    powers, lanes, decay, mixed, lane = of_rows
    at += d
    m0 = m1 = m2 = m3 = like
    for j in range(num):
        x, i = load(values, places[j] + d, like), j * lanes + lane
        m0 = plus_product_at(m0, powers, i, x)
        m1 = plus_product_at(m1, powers, i + 1, x)
        m2 = plus_product_at(m2, powers, i + 2, x)
        m3 = plus_product_at(m3, powers, i + 3, x)
    m0 = _with(mixed, at, decay[lane], m0)
    m1 = _with(mixed, at + dim, decay[lane + 1], m1)
    m2 = _with(mixed, at + 2 * dim, decay[lane + 2], m2)
    m3 = _with(mixed, at + 3 * dim, decay[lane + 3], m3)
    _put_four(mixed, at, dim, m0, m1, m2, m3)


@_compiled
def _with(mixed, at, worth, x):
    """What a block adds, and what was there, decayed."""
    return plus_products(x, load(mixed, at, x), spread(worth, x))


@_compiled
def _put_rows(array, at, step, x0, x1, x2, x3, x4, x5, x6, x7):
    _put_four(array, at, step, x0, x1, x2, x3)
    _put_four(array, at + 4 * step, step, x4, x5, x6, x7)


@_compiled
def _put_four(array, at, step, x0, x1, x2, x3):
    store(array, at, x0)
    store(array, at + step, x1)
    store(array, at + 2 * step, x2)
    store(array, at + 3 * step, x3)
