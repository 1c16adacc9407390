"""Attention of single tokens over keys in any slots, read where they lie: compiled loops.

Two heads of a group at a time meet blocks of keys, and the softmax goes on from block to block.
While a block's keys are read its values are fetched, and while these are read the next block's
keys, so that they come as fast as memory gives them. What the loops need is handed over by address,
see `spots`. Keys and values are float32 numbers, or the bits of
bfloat16 ones. Only on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ..jit.rounding import peak_for, rounded_for, rounded_weight, weight_for
from ..jit.spots import (
    HALF,
    MANY,
    fetch,
    half,
    in_bytes,
    in_fours,
    joined,
    many,
    number,
    plus_products,
    plus_scaled,
    put,
    read,
    read_as,
    slot,
    write,
    zero,
)
from ..jit.vectors import (
    NARROW,
    WIDE,
    exp2,
    highest,
    larger,
    minus,
    narrow,
    plus,
    single,
    spread,
    summed,
    tanh,
    times,
    wide,
)
from .single_rooms import BLOCK, LANES, ROOM, ROWS, SIZE, filled_dim, room_at

_LINE = 64  # bytes that a cache fetches at a time
_LOWEST = np.float32(-3e38)  # stands below all scores; -inf would leave NaN where nothing is seen
_LOG2 = np.float32(np.log(2))
_INTS = "int32[::1]"
_SIGNATURE = (
    "void(float32[:, :, :], {0}[:, :, ::1], {0}[::1], float32[:, :, ::1], float32[:, ::1],"
    f" int64[::1], int32[:, ::1], {_INTS}, {_INTS}, {_INTS}, float32, float32, int64, int64)"
)
SIGNATURES = {"float32": _SIGNATURE.format("float32"), "bfloat16": _SIGNATURE.format("uint16")}
_compiled = njit(error_model="numpy", nogil=True)
_inlined = njit(error_model="numpy", nogil=True, forceinline=True)  # no call in an inner loop


class Block(NamedTuple):
    """Keys or values: where their slots stand, where slot 0 is, and how many there are."""

    slots: int
    base: int
    num: int


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
    group, row_size, kind = q.shape[1] // num_kv_heads, dim * SIZE, zero(keys)
    numbers = np.zeros(room_at(0, group, dim).end // SIZE + _LINE, np.float32)
    room = room_at(_at(numbers) + -_at(numbers) % _LINE, group, dim)
    table_at, table_step = _at(table), table.shape[1] * SIZE
    head_size, apart = num_slots * in_bytes(row_size, kind), _at(values) - _at(keys)
    for kv_head in range(num_kv_heads):  # so what tokens have in common stays in a near cache
        base = _at(keys) + kv_head * head_size
        for i in range(start, stop):
            at, end, slots = firsts[i], ends[i], table_at + rows[i] * table_step
            _begin(q, tokens[i], kv_head * group, group, (scale, kind), room)
            while at < end:
                block = Block(slots + at * SIZE, base, _size(end - at))
                at += block.num
                if at < end:
                    soon = Block(slots + at * SIZE, base, _size(end - at))
                else:
                    is_last = i + 1 == stop
                    other, begin = (start, base + head_size) if is_last else (i + 1, base)
                    num = _size(ends[other] - firsts[other])
                    if is_last and kv_head + 1 == num_kv_heads:
                        begin, num = base, 0
                    others = table_at + rows[other] * table_step + firsts[other] * SIZE
                    soon = Block(others, begin, num)
                _meet(block, soon, apart, (row_size, kind), group, cap, room)
            _end(out, total, tokens[i], kv_head * group, group, room)
    numbers[0] = 0  # so long they are not given back: the loops know only where they are


@_inlined
def _at(array):
    """An address; signed, for numba makes a sum of a signed number and another a float."""
    return np.intp(array.ctypes.data)


@_inlined
def _size(left):
    """Keys of the next block, of so many that are left."""
    return BLOCK if left >= ROOM else left


@_compiled
def _begin(q, token, first_head, group, of_scores, room):
    """Queries, scaled; an odd number of heads has its last one twice. The zeros that a query is
    filled up with stand before its last vector, see `_score_lanes`. Nothing is mixed yet."""
    dim, even = q.shape[2], group + group % 2
    filled, lanes = filled_dim(dim), HALF if dim >= HALF else NARROW
    whole = dim // lanes * lanes if dim >= NARROW else dim
    for i in range(even):
        head, at = first_head + min(i, group - 1), room.queries + i * filled * SIZE
        for d in range(whole):
            write(at + d * SIZE, _scaled(q, token, head, d, of_scores))
        for d in range(whole, dim):
            write(at + (d + filled - dim) * SIZE, _scaled(q, token, head, d, of_scores))
        put(room.peaks + i * SIZE, _LOWEST)
        write(room.sums + i * LANES * SIZE, wide())
    for i in range(even * dim):
        put(room.mixed + i * SIZE, np.float32(0))


@_inlined
def _scaled(q, token, head, d, of_scores):
    scale, kind = of_scores
    return rounded_for(spread(q[token, head, d] * scale, single()), kind)


@_inlined
def _meet(block, soon, apart, of_row, group, cap, room):
    """All heads of a group and a block of keys, whose values are so far apart from them. soon: the
    next block's keys. of_row: bytes of a row's numbers as float32, and a number as rows of keys and
    values have it."""
    row_size, filled = of_row[0], filled_dim(of_row[0] // SIZE) * SIZE
    num_turns = (group + 1) // 2
    for turn in range(num_turns):
        head, of_turn = 2 * turn, (turn, num_turns)
        scores, queries = room.scores + head * ROOM * SIZE, room.queries + head * filled
        _score(block, apart, of_row, of_turn, queries, filled, scores, room.parts)
        if cap > 0:
            _bend(scores, block.num, cap)
            _bend(scores + ROOM * SIZE, block.num, cap)
        _soften(scores, block.num, head, room, of_row[1])
        _soften(scores + ROOM * SIZE, block.num, head + 1, room, of_row[1])
    values = Block(block.slots, block.base + apart, block.num)
    for turn in range(num_turns):
        head, of_turn = 2 * turn, (turn, num_turns)
        powers, worths = room.scores + head * ROOM * SIZE, room.worths + head * SIZE
        mixed = room.mixed + head * row_size
        _mix(values, soon, of_row, of_turn, (powers, worths), mixed)


@_inlined
def _score(block, apart, of_row, of_turn, queries, filled, scores, parts):
    """scores [2, room] of two heads; behind the last key, anything. Values are fetched meanwhile,
    by all turns of heads together."""
    (slots, base, num), (row_size, kind) = block, of_row
    if row_size >= HALF * SIZE:
        of_lanes = half(), HALF
        _score_lanes(block, apart, of_row, of_turn, queries, filled, scores, parts, *of_lanes)
    elif row_size >= NARROW * SIZE:
        of_lanes = narrow(), NARROW
        _score_lanes(block, apart, of_row, of_turn, queries, filled, scores, parts, *of_lanes)
    else:
        for j in range(num):
            x, y = single(), single()
            key = base + slot(slots + j * SIZE) * in_bytes(row_size, kind)
            for d in range(0, row_size, SIZE):
                k = read_as(key + in_bytes(d, kind), kind, single())
                x = plus_products(x, k, read(queries + d, single()))
                y = plus_products(y, k, read(queries + filled + d, single()))
            write(scores + j * SIZE, x)
            write(scores + (ROOM + j) * SIZE, y)


@_compiled
def _score_lanes(block, apart, of_row, of_turn, queries, filled, scores, parts, like, lanes):
    """The same by vectors like `like`. Where dim is no multiple of their lanes, the last one meets
    some columns again, as zeros."""
    (slots, base, num), (turn, num_turns), (row_size, kind) = block, of_turn, of_row
    size, key_size = lanes * SIZE, in_bytes(row_size, kind)
    whole = row_size // (MANY * SIZE) * (MANY * SIZE) if lanes == HALF else 0
    wait, last = turn, slots + (num - 1) * SIZE
    for j in range(0, num, ROWS):
        at = slots + j * SIZE
        k0 = base + slot(at) * key_size
        k1 = base + slot(min(at + SIZE, last)) * key_size
        k2 = base + slot(min(at + 2 * SIZE, last)) * key_size
        k3 = base + slot(min(at + 3 * SIZE, last)) * key_size
        if wait == 0:
            wait = num_turns
            for d in range(apart, apart + key_size, _LINE):
                fetch(k0 + d)
                fetch(k1 + d)
                fetch(k2 + d)
                fetch(k3 + d)
        wait -= 1
        x0 = x1 = x2 = x3 = y0 = y1 = y2 = y3 = like
        for d in range(0, whole, MANY * SIZE):
            x, y = read(queries + d, many()), read(queries + filled + d, many())
            here = in_bytes(d, kind)
            k = read_as(k0 + here, kind, many())
            x0, y0 = plus_products(x0, k, x), plus_products(y0, k, y)
            k = read_as(k1 + here, kind, many())
            x1, y1 = plus_products(x1, k, x), plus_products(y1, k, y)
            k = read_as(k2 + here, kind, many())
            x2, y2 = plus_products(x2, k, x), plus_products(y2, k, y)
            k = read_as(k3 + here, kind, many())
            x3, y3 = plus_products(x3, k, x), plus_products(y3, k, y)
        for d in range(whole, row_size, size):
            x, y = read(queries + d, like), read(queries + filled + d, like)
            here = in_bytes(min(d, row_size - size), kind)
            k = read_as(k0 + here, kind, like)
            x0, y0 = plus_products(x0, k, x), plus_products(y0, k, y)
            k = read_as(k1 + here, kind, like)
            x1, y1 = plus_products(x1, k, x), plus_products(y1, k, y)
            k = read_as(k2 + here, kind, like)
            x2, y2 = plus_products(x2, k, x), plus_products(y2, k, y)
            k = read_as(k3 + here, kind, like)
            x3, y3 = plus_products(x3, k, x), plus_products(y3, k, y)
        write(parts + j * size // ROWS, in_fours(x0, x1, x2, x3))
        write(parts + (ROOM + j) * size // ROWS, in_fours(y0, y1, y2, y3))
    for j in range(0, num, lanes):
        write(scores + j * SIZE, joined(parts + j * size // ROWS, like))
        write(scores + (ROOM + j) * SIZE, joined(parts + (ROOM + j) * size // ROWS, like))


@_compiled
def _bend(scores, num, cap):
    """Softcap: cap * tanh(score / cap)."""
    bound, share = spread(np.float32(cap), wide()), spread(np.float32(1 / cap), wide())
    for at in range(scores, scores + num * SIZE, LANES * SIZE):
        write(at, times(bound, tanh(times(read(at, bound), share))))


@_compiled
def _soften(scores, num, head, room, kind):
    """Scores of a head to powers below the highest so far; what those before are worth now."""
    peak, sums = room.peaks + head * SIZE, room.sums + head * LANES * SIZE
    end = scores + num * SIZE
    for at in range(end, scores + (num + LANES - 1) // LANES * LANES * SIZE, SIZE):
        put(at, np.float32(-np.inf))
    before = spread(number(peak), wide())
    most = before
    for at in range(scores, end, LANES * SIZE):
        most = larger(most, read(at, most))
    top = peak_for(spread(highest(most), most), kind)
    decay = exp2(minus(before, top))
    total = wide()  # of this block: many small powers would be lost one by one beside a large sum
    for at in range(scores, end, LANES * SIZE):
        power = weight_for(minus(read(at, top), top), kind)
        total = plus(total, power)
        write(at, rounded_weight(power, kind))
    write(sums, plus_products(total, read(sums, top), decay))
    put(peak, highest(top))
    put(room.worths + head * SIZE, highest(decay))


@_inlined
def _mix(block, soon, of_row, of_turn, of_two, mixed):
    """mixed [2, dim]: what it was for two heads, decayed, and the values of a block by their
    powers. Keys of the next block are fetched meanwhile."""
    (row_size, _), d = of_row, 0
    while d + MANY * SIZE <= row_size:
        _mix_many(block, soon, of_row, of_turn, of_two, mixed, d)
        d += MANY * SIZE
    while d + WIDE * SIZE <= row_size:
        _mix_lanes(block, soon, of_row, of_turn, of_two, mixed, d, wide(), WIDE)
        d += WIDE * SIZE
    while d + NARROW * SIZE <= row_size:
        _mix_lanes(block, soon, of_row, of_turn, of_two, mixed, d, narrow(), NARROW)
        d += NARROW * SIZE
    while d < row_size:
        _mix_lanes(block, soon, of_row, of_turn, of_two, mixed, d, single(), 1)
        d += SIZE


@_compiled
def _mix_many(block, soon, of_row, of_turn, of_two, mixed, d):
    """The columns from byte d on of a vector so long that its parts keep the processor busy."""
    (slots, base, num), (powers, worth), wait = block, of_two, of_turn[0]
    row_size, kind = of_row
    mixed, base, value_size = mixed + d, base + in_bytes(d, kind), in_bytes(row_size, kind)
    x = y = many()
    for j in range(0, num * SIZE, SIZE):
        value = read_as(base + slot(slots + j) * value_size, kind, many())
        wait = _fetch_one(soon, of_row, of_turn, wait, j, d, MANY)
        x = plus_scaled(x, powers + j, value)
        y = plus_scaled(y, powers + ROOM * SIZE + j, value)
    _fetch_rest(soon, of_row, of_turn, wait, num, d, MANY)
    _add(mixed, x, worth)
    _add(mixed + row_size, y, worth + SIZE)


@_compiled
def _mix_lanes(block, soon, of_row, of_turn, of_two, mixed, d, like, lanes):
    """The same of a shorter vector, for two keys at a time."""
    (slots, base, num), (powers, worth), wait = block, of_two, of_turn[0]
    (row_size, kind), others = of_row, powers + ROOM * SIZE
    mixed, base, value_size = mixed + d, base + in_bytes(d, kind), in_bytes(row_size, kind)
    x0 = x1 = y0 = y1 = like
    for j in range(0, num // 2 * 2 * SIZE, 2 * SIZE):
        value = read_as(base + slot(slots + j) * value_size, kind, like)
        wait = _fetch_one(soon, of_row, of_turn, wait, j, d, lanes)
        x0, y0 = plus_scaled(x0, powers + j, value), plus_scaled(y0, others + j, value)
        i = j + SIZE
        value = read_as(base + slot(slots + i) * value_size, kind, like)
        wait = _fetch_one(soon, of_row, of_turn, wait, i, d, lanes)
        x1, y1 = plus_scaled(x1, powers + i, value), plus_scaled(y1, others + i, value)
    if num % 2:
        j = (num - 1) * SIZE
        value = read_as(base + slot(slots + j) * value_size, kind, like)
        wait = _fetch_one(soon, of_row, of_turn, wait, j, d, lanes)
        x0, y0 = plus_scaled(x0, powers + j, value), plus_scaled(y0, others + j, value)
    _fetch_rest(soon, of_row, of_turn, wait, num, d, lanes)
    _add(mixed, plus(x0, x1), worth)
    _add(mixed + row_size, plus(y0, y1), worth + SIZE)


@_inlined
def _add(mixed, x, worth):  # to what was mixed, which is worth so much yet
    write(mixed, plus_products(x, read(mixed, x), spread(number(worth), x)))


@_inlined
def _fetch_one(soon, of_row, of_turn, wait, j, d, lanes):
    """The columns of a key of the next block if it is this turn's; how many others come before the
    next that is."""
    (slots, base, num), (row_size, kind) = soon, of_row
    if wait == 0 and j < num * SIZE:
        at = base + slot(slots + j) * in_bytes(row_size, kind) + in_bytes(d, kind)
        for line in range(0, in_bytes(lanes * SIZE, kind), _LINE):
            fetch(at + line)
    return wait - 1 if wait else of_turn[1] - 1


@_inlined
def _fetch_rest(soon, of_row, of_turn, wait, num, d, lanes):
    """Those of the keys from number `num` on."""
    for j in range(num * SIZE, soon[2] * SIZE, SIZE):
        wait = _fetch_one(soon, of_row, of_turn, wait, j, d, lanes)


@_compiled
def _end(out, total, token, first_head, group, room):
    """What was mixed, and the log-sum-exp of the scores, go where they belong."""
    dim = out.shape[2]
    for i in range(group):
        whole = summed(read(room.sums + i * LANES * SIZE, wide()))
        share, peak = np.float32(1) / whole, number(room.peaks + i * SIZE)
        for d in range(dim):
            out[token, first_head + i, d] = number(room.mixed + (i * dim + d) * SIZE) * share
        total[token, first_head + i] = (peak + np.log2(whole)) * _LOG2
