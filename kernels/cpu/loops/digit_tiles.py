"""Attention as in `tiles`, for processors that multiply tiles of digits (`digits`): compiled loops.

Queries, keys and values are integers times their row's unit, and so are the powers of a block's
scores, of which the units of values are factors. All sums of products are exact, so that a token
has the same numbers in any company. Only for float32 on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from ..jit.amx import BYTES, ROWS, begin, end
from ..jit.attention_lanes import SQUARE, few, turn
from ..jit.vectors import (
    exp2,
    fetch,
    fetch_far,
    larger,
    load,
    minus,
    over,
    plus,
    plus_products,
    spread,
    store,
    times,
)
from ..parts import LONG
from .digits import (
    DEPTH,
    DIGITS,
    MOST,
    MOST_POSITIVE,
    PLACES,
    TILE,
    UNIT,
    clear_sums,
    keep_sums,
    larger_size,
    largest,
    multiply,
    multiply_positive,
    put,
    put_positive,
    take,
    take_right,
)
from .tiles import BLOCK, LOWEST, bend, find, hide, longest, look, settle

_DIMS = DEPTH, 2 * DEPTH  # of heads; sums of more products could overflow
LANES = ROWS  # queries of a tile
LEAST = LONG  # queries over a block of keys from which these are worth to be split into digits
MOST_TILES = 512 // LANES  # tiles that a block is read for, while it is in a near cache
_FOURS = DEPTH // 4  # numbers that as many digits take
_PART = DIGITS * TILE  # numbers that the digits of a tile take
_SUMS = PLACES * TILE
SOON = 16  # how many queries ahead they are fetched, and their results' places
_LEAST = np.float32(1e-30)  # for rows of zeros
_MOST, _MOST_POSITIVE = np.float32(MOST), np.float32(MOST_POSITIVE)
_UNIT, _POSITIVE_UNIT = np.float32(UNIT / MOST), np.float32(UNIT / MOST / MOST_POSITIVE)
_compiled = njit(error_model="numpy", nogil=True)


def fits(dim: int) -> bool:
    """Whether heads of such a dim can be read."""
    return dim in _DIMS


def attend(
    q, keys, values, out, total, table, rows, firsts, starts, ends, bounds, window, scale, cap,
    num_tiles, tokens, is_merged, least, least_not, part, num_parts,
):  # fmt: skip
    """As `tiles.attend`, for a dim that `fits`."""
    num_kv_heads, num_slots, dim = keys.shape
    group, keys_flat = q.shape[1] // num_kv_heads, keys.reshape(-1)
    most = (longest(bounds, least, least_not) * group + LANES - 1) // LANES
    most = min(most, num_tiles) * LANES
    of_queries, of_keys = room(most * dim * DIGITS // 4), room(BLOCK * dim * DIGITS // 4)
    of_values, turned = room(BLOCK * dim * DIGITS // 4), room(BLOCK * dim * DIGITS // 4)
    digits = of_queries, of_keys, of_values, room(BLOCK * LANES * DIGITS // 4)
    products, rest = room(max(BLOCK, dim) * LANES * PLACES), np.empty(SQUARE * dim, np.float32)
    scores = np.empty((BLOCK + 2) * LANES, np.float32)
    mixed, units = np.empty(most * dim, np.float32), np.empty(most, np.float32)
    peaks, sums = np.empty(most, np.float32), np.empty(most, np.float32)
    lows, highs = np.empty(most, np.float32), np.empty(most, np.float32)
    places, of_block = np.empty((2, BLOCK), np.int64), np.empty((2, BLOCK), np.float32)
    of_q = np.empty(most + SOON, np.int64)
    of_tile, of_sums, count = (units, lows, highs), (mixed, peaks, sums), 0
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
                if count % num_parts != part:
                    continue
                used = min(most, num_queries - start)
                of_tiles = start, used, bounds[s], kv_head * group, group
                find_queries(of_q, q, tokens, of_tiles)
                _pack(q, tokens, of_q, of_queries, turned, units, rest, scale, of_tiles)
                look(lows, highs, firsts[s], starts[s], ends[s], window, of_tiles, few())
                mixed[: (used + LANES - 1) // LANES * LANES * dim] = 0
                peaks[:] = LOWEST
                sums[:] = 0
                stop = int(highs[used - 1])
                begun = firsts[s] + (int(lows[0]) - firsts[s]) // BLOCK * BLOCK  # as for all tokens
                find(places[1], slots, begun, stop, base, dim)
                for at in range(begun, stop, BLOCK):
                    num = min(BLOCK, stop - at)
                    places[0] = places[1]
                    if at + BLOCK < stop:
                        find(places[1], slots, at + BLOCK, stop, base, dim)
                    _pack_keys(keys_flat, values, places[0], num, dim, of_keys, of_block[0])
                    _pack_values(
                        keys_flat, values, places, num, dim, of_values, turned, of_block[1]
                    )
                    at_block = at, num, used, dim
                    _meet(at_block, digits, products, cap, of_tile, of_block, of_sums, scores)
                find_queries(of_q, out, tokens, of_tiles)
                unpack(of_sums, out, total, tokens, is_merged, of_tiles, of_q, rest)
    end()


@_compiled
def room(size):
    """For so many numbers, of which rows of tiles begin where a cache's lines do."""
    numbers = np.empty(size + BYTES // 4, np.float32)
    first = -numbers.ctypes.data % BYTES // 4
    return numbers[first : first + size]


@_compiled
def find_queries(places, numbers, tokens, of_tiles):
    """places: where each query of tiles begins in numbers [tokens, heads, dim]; those behind the
    last one lie where it does."""
    start, used, first, first_head, group = of_tiles
    token, head, at = first + start // group, start % group, 0
    for i in range(len(places)):
        if i < used:
            at = tokens[token] * numbers.strides[0] + (first_head + head) * numbers.strides[1]
            head += 1
            if head == group:
                token, head = token + 1, 0
        places[i] = at // numbers.itemsize


@_compiled
def _greatest(numbers, at, dim):
    """The size of a row's greatest number."""
    most = spread(_LEAST, few())
    for d in range(0, dim, LANES):
        most = larger_size(most, load(numbers, at + d, most))
    return largest(most)


@_compiled
def _put_row(numbers, at, share, dim, digits, to, apart):
    """A row's numbers [dim / 64, 3, 64], the digits of a place so far behind those of another."""
    share = spread(share, few())
    for d in range(0, dim, DEPTH):
        x0 = times(load(numbers, at + d, share), share)
        x1 = times(load(numbers, at + d + LANES, share), share)
        x2 = times(load(numbers, at + d + 2 * LANES, share), share)
        x3 = times(load(numbers, at + d + 3 * LANES, share), share)
        put(x0, x1, x2, x3, digits, to + d // DEPTH * DIGITS * apart, apart)


@_compiled
def _pack(q, tokens, places, digits, turned, units, rest, scale, of_tiles):
    """digits: [tiles, dim / 64, 3, 16, 16 queries, 4]; the last query fills up its tile. places: as
    `find_queries` has them. turned: room for as many of SQUARE queries. rest: room for a query."""
    start, used, first, first_head, group = of_tiles
    dim, is_even = q.shape[2], q.strides[2] == q.itemsize
    size = dim * DIGITS // 4
    for i in range((used + LANES - 1) // LANES * LANES):
        if is_even:
            at, ahead = places[i], places[i + SOON]
            for d in range(0, dim, LANES):
                fetch(q, ahead + d)
                store(rest, d, load(q, at + d, few()))
        else:
            query = start + min(i, used - 1)
            for d in range(dim):
                rest[d] = q[tokens[first + query // group], first_head + query % group, d]
        most, row = _greatest(rest, 0, dim), i % SQUARE
        units[i] = most * (scale / _MOST)
        _put_row(rest, 0, _MOST / most, dim, turned, row * _FOURS, SQUARE * _FOURS)
        if row == SQUARE - 1:
            to = i // LANES * LANES * size + i % LANES - row
            for j in range(0, size, SQUARE):
                at = j // _FOURS * SQUARE * _FOURS + j % _FOURS
                turn(turned, at, _FOURS, digits, to + j * LANES, LANES)


@_compiled
def _pack_keys(keys, values, places, num, dim, digits, units):
    """digits: [keys / 16, dim / 64, 3, 16 keys, 64]. Values come near."""
    for j in range((num + ROWS - 1) // ROWS * ROWS):
        for d in range(0, dim, LANES):
            fetch(values, places[j] + d)
        most = _greatest(keys, places[j], dim)
        units[j] = most * _UNIT
        to = j // ROWS * (dim // DEPTH) * _PART + j % ROWS * _FOURS
        _put_row(keys, places[j], _MOST / most, dim, digits, to, TILE)


@_compiled
def _pack_values(keys, values, places, num, dim, digits, turned, units):
    """digits: [dim / 16, 3, 16 columns, 64 keys]. turned: room for as many. What is read next,
    places[1], comes nearer."""
    for j in range(0, num, 4):
        for i in range(j, j + 4):
            units[i] = _greatest(values, places[0, i], dim)
            for d in range(0, dim, LANES):
                fetch_far(keys, places[1, i] + d)
                fetch_far(values, places[1, i] + d)
        s0, s1 = spread(_MOST / units[j], few()), spread(_MOST / units[j + 1], few())
        s2, s3 = spread(_MOST / units[j + 2], few()), spread(_MOST / units[j + 3], few())
        for d in range(0, dim, LANES):
            x0 = times(load(values, places[0, j] + d, s0), s0)
            x1 = times(load(values, places[0, j + 1] + d, s1), s1)
            x2 = times(load(values, places[0, j + 2] + d, s2), s2)
            x3 = times(load(values, places[0, j + 3] + d, s3), s3)
            put(x0, x1, x2, x3, turned, j // 4 * dim + d, _FOURS * dim)
    for digit in range(DIGITS):
        for d in range(0, dim, SQUARE):
            to = d // ROWS * _PART + digit * TILE + d % ROWS * _FOURS
            for row in range(0, _FOURS, SQUARE):
                turn(turned, (digit * _FOURS + row) * dim + d, dim, digits, to + row, _FOURS)


@_compiled
def _meet(at_block, digits, products, cap, of_tile, of_block, of_sums, scores):
    """A block, and the tiles of queries that see keys of it."""
    (at, num_keys, used, dim), (units, lows, highs) = at_block, of_tile
    of_queries, of_keys, of_values, of_powers = digits
    (mixed, peaks, sums), before = of_sums, -1
    for tile in range(0, used, LANES):
        last = tile + LANES - 1
        num = min(num_keys, int(highs[last]) - at)
        if num <= 0 or at + num <= lows[tile]:
            continue
        _multiply_keys(of_keys, of_queries, tile, num, dim, products)
        _score(products, num, load(units, tile, few()), of_block[0], scores)
        if before >= 0:  # not sooner: registers would wait for powers that were just written
            _mix(of_values, of_powers, before, dim, products, scores, mixed)
        if cap > 0:
            bend(scores, num, cap, few())
        if at < lows[last] or at + num > highs[tile]:
            hide(scores, num, lows, highs, tile, at, few())
        _soften(scores, num, peaks, sums, tile, of_block[1])
        _pack_powers(scores, num, of_powers)
        before = tile
    if before >= 0:
        _mix(of_values, of_powers, before, dim, products, scores, mixed)


@_compiled
def _multiply_keys(of_keys, of_queries, tile, num, dim, products):
    """products: [keys / 16, 4, 16 keys, 16 queries] of a tile."""
    steps, left = dim // DEPTH, 0
    right = tile // LANES * steps * _PART
    for row in range((num + ROWS - 1) // ROWS):
        clear_sums()
        for step in range(steps):
            if row == 0 or steps > 1:
                take_right(of_queries, right + step * _PART)
            multiply(of_keys, left)
            left += _PART
        keep_sums(products, row * _SUMS)


@_compiled
def _score(products, num, unit, units, scores):
    """scores: [keys, 16]; behind the last key, those of keys unasked."""
    for j in range((num + ROWS - 1) // ROWS * ROWS):
        x = take(products, j // ROWS * _SUMS + j % ROWS * LANES, TILE)
        store(scores, j * LANES, times(times(x, spread(units[j], unit)), unit))


@_compiled
def _soften(scores, num, peaks, sums, tile, units):
    """Scores to powers below the highest so far, times the units of values. Behind them: what those
    before are worth now, and the greatest one."""
    before = p0 = p1 = p2 = p3 = load(peaks, tile, few())
    full = (num + 3) // 4 * 4
    for j in range(num, full):
        store(scores, j * LANES, spread(LOWEST, before))
    for j in range(0, full, 4):
        p0 = larger(p0, load(scores, j * LANES, before))
        p1 = larger(p1, load(scores, (j + 1) * LANES, before))
        p2 = larger(p2, load(scores, (j + 2) * LANES, before))
        p3 = larger(p3, load(scores, (j + 3) * LANES, before))
    peak = larger(larger(p0, p1), larger(p2, p3))
    worth, most = exp2(minus(before, peak)), spread(_LEAST, peak)
    total = few()  # of this block: many small powers would be lost one by one beside a large sum
    for j in range(num):
        power = exp2(minus(load(scores, j * LANES, peak), peak))
        total = plus(total, power)
        power = times(power, spread(units[j], peak))
        most = larger_size(most, power)
        store(scores, j * LANES, power)
    for j in range(num, full):
        store(scores, j * LANES, few())
    store(peaks, tile, peak)
    store(sums, tile, plus_products(total, load(sums, tile, peak), worth))
    store(scores, BLOCK * LANES, worth)
    store(scores, (BLOCK + 1) * LANES, most)


@_compiled
def _pack_powers(scores, num, digits):
    """digits: [3, 16, 16 queries, 4 keys]."""
    share = over(spread(_MOST_POSITIVE, few()), load(scores, (BLOCK + 1) * LANES, few()))
    to = 0
    for j in range(0, num * LANES, 4 * LANES):
        x0 = times(load(scores, j, share), share)
        x1 = times(load(scores, j + LANES, share), share)
        x2 = times(load(scores, j + 2 * LANES, share), share)
        x3 = times(load(scores, j + 3 * LANES, share), share)
        put_positive(x0, x1, x2, x3, digits, to, TILE)
        to += LANES
    for at in range(to, TILE, LANES):
        store(digits, at, few())
        store(digits, at + TILE, few())
        store(digits, at + 2 * TILE, few())


@_compiled
def _mix(of_values, of_powers, tile, dim, products, scores, mixed):
    """mixed [tiles, dim, 16 queries]: what it was, decayed, and the values by their powers."""
    worth, most = load(scores, BLOCK * LANES, few()), load(scores, (BLOCK + 1) * LANES, few())
    unit = times(most, spread(_POSITIVE_UNIT, most))
    take_right(of_powers, 0)
    for g in range(dim // ROWS):
        clear_sums()
        multiply_positive(of_values, g * _PART)
        keep_sums(products, g * _SUMS)
    for d in range(dim):
        at = tile * dim + d * LANES
        x = times(take(products, d // ROWS * _SUMS + d % ROWS * LANES, TILE), unit)
        store(mixed, at, plus_products(x, load(mixed, at, worth), worth))


@_compiled
def unpack(of_sums, out, total, tokens, is_merged, of_tiles, places, rest):
    """places: as `find_queries` has them in out. rest: room for SQUARE queries."""
    (start, used, first, first_head, group), (mixed, peaks, sums) = of_tiles, of_sums
    dim, token, head = out.shape[2], first + start // group, start % group
    for i in range(used):
        if i % SQUARE == 0:
            at = i // LANES * LANES * dim + i % LANES
            for d in range(0, dim, SQUARE):
                turn(mixed, at + d * LANES, LANES, rest, d, dim)
        t, h = tokens[token], first_head + head
        total[t, h], share, kept = settle(peaks[i], sums[i], total[t, h], is_merged)
        to, ahead = places[i], places[i + SOON]
        for d in range(0, dim, LANES):
            fetch(out, ahead + d)
            x = times(load(rest, i % SQUARE * dim + d, few()), spread(share, few()))
            if is_merged:
                x = plus_products(x, load(out, to + d, x), spread(kept, x))
            store(out, to + d, x)
        head += 1
        if head == group:
            token, head = token + 1, 0
