"""Attention of single tokens over keys in any slots, read where they lie: compiled loops.

Two heads of a group at a time meet blocks of keys, and the softmax goes on from block to block.
While a block's keys are read its values are fetched, and while these are read the next block's
keys, so that they come as fast as memory gives them. What the loops need is handed over by address,
see `spots`. Only for float32 on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .spots import (
    HALF,
    MANY,
    fetch,
    half,
    in_fours,
    joined,
    many,
    number,
    plus_products,
    plus_scaled,
    put,
    read,
    slot,
    write,
)
from .vectors import (
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

LANES = WIDE
BLOCK = 64  # keys of a block
_ROOM = BLOCK + BLOCK // 2  # below, those that are left make one block
_ROWS = 4  # keys that meet two heads at a time
_SIZE, _LINE = 4, 64  # bytes of a number, and of a slot's; that a cache fetches at a time
_LOWEST = np.float32(-3e38)  # stands below all scores; -inf would leave NaN where nothing is seen
_LOG2 = np.float32(np.log(2))
_INTS = "int32[::1]"
SIGNATURE = (
    "void(float32[:, :, :], float32[:, :, ::1], float32[::1], float32[:, :, ::1], float32[:, ::1],"
    f" int64[::1], int32[:, ::1], {_INTS}, {_INTS}, {_INTS}, float32, float32, int64, int64)"
)
_compiled = njit(error_model="numpy", nogil=True)
_inlined = njit(error_model="numpy", nogil=True, forceinline=True)  # no call in an inner loop


class Block(NamedTuple):
    """Keys or values: where their slots stand, where slot 0 is, and how many there are."""

    slots: int
    base: int
    num: int


class Room(NamedTuple):
    """Where what is kept of a group's heads begins: parts of two heads' scores; scores of a block
    [heads, room]; sums [heads, lanes]; queries [heads, filled dim]; what they mixed of values so
    far [heads, dim]; the peaks of their scores [heads]; and what was mixed is worth yet [heads]."""

    parts: int
    scores: int
    sums: int
    queries: int
    mixed: int
    peaks: int
    worths: int
    end: int


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
    group, row_size = q.shape[1] // num_kv_heads, dim * _SIZE
    numbers = np.zeros(_room(0, group, dim).end // _SIZE + _LINE, np.float32)
    room = _room(_at(numbers) + -_at(numbers) % _LINE, group, dim)
    table_at, table_step = _at(table), table.shape[1] * _SIZE
    head_size, apart = num_slots * row_size, _at(values) - _at(keys)
    for kv_head in range(num_kv_heads):  # so what tokens have in common stays in a near cache
        base = _at(keys) + kv_head * head_size
        for i in range(start, stop):
            at, end, slots = firsts[i], ends[i], table_at + rows[i] * table_step
            _begin(q, tokens[i], kv_head * group, group, scale, room)
            while at < end:
                block = Block(slots + at * _SIZE, base, _size(end - at))
                at += block.num
                if at < end:
                    soon = Block(slots + at * _SIZE, base, _size(end - at))
                else:
                    is_last = i + 1 == stop
                    other, begin = (start, base + head_size) if is_last else (i + 1, base)
                    num = _size(ends[other] - firsts[other])
                    if is_last and kv_head + 1 == num_kv_heads:
                        begin, num = base, 0
                    others = table_at + rows[other] * table_step + firsts[other] * _SIZE
                    soon = Block(others, begin, num)
                _meet(block, soon, apart, row_size, group, cap, room)
            _end(out, total, tokens[i], kv_head * group, group, room)
    numbers[0] = 0  # so long they are not given back: the loops know only where they are


@_inlined
def _room(at, group, dim):
    """Room from an address on."""
    even = (group + group % 2) * _SIZE
    scores = at + 2 * _ROOM // _ROWS * HALF * _SIZE
    sums = scores + even * _ROOM
    queries = sums + even * LANES
    mixed = queries + even * _filled(dim)
    peaks = mixed + even * dim
    worths = peaks + even
    return Room(at, scores, sums, queries, mixed, peaks, worths, worths + even)


@_inlined
def _at(array):
    """An address; signed, for numba makes a sum of a signed number and another a float."""
    return np.intp(array.ctypes.data)


@_inlined
def _filled(dim):
    """Numbers of a query and those it is filled up with, to whole vectors."""
    if dim >= HALF:
        return (dim + HALF - 1) // HALF * HALF
    return (dim + NARROW - 1) // NARROW * NARROW if dim >= NARROW else dim


@_inlined
def _size(left):
    """Keys of the next block, of so many that are left."""
    return BLOCK if left >= _ROOM else left


@_compiled
def _begin(q, token, first_head, group, scale, room):
    """Queries, scaled; an odd number of heads has its last one twice. The zeros that a query is
    filled up with stand before its last vector, see `_score_lanes`. Nothing is mixed yet."""
    dim, even = q.shape[2], group + group % 2
    filled, lanes = _filled(dim), HALF if dim >= HALF else NARROW
    whole = dim // lanes * lanes if dim >= NARROW else dim
    for i in range(even):
        head, at = first_head + min(i, group - 1), room.queries + i * filled * _SIZE
        for d in range(whole):
            put(at + d * _SIZE, q[token, head, d] * scale)
        for d in range(whole, dim):
            put(at + (d + filled - dim) * _SIZE, q[token, head, d] * scale)
        put(room.peaks + i * _SIZE, _LOWEST)
        write(room.sums + i * LANES * _SIZE, wide())
    for i in range(even * dim):
        put(room.mixed + i * _SIZE, np.float32(0))


@_inlined
def _meet(block, soon, apart, row_size, group, cap, room):
    """All heads of a group and a block of keys, whose values are so far apart from them. soon: the
    next block's keys."""
    filled = _filled(row_size // _SIZE) * _SIZE
    num_turns = (group + 1) // 2
    for turn in range(num_turns):
        head, of_turn = 2 * turn, (turn, num_turns)
        scores, queries = room.scores + head * _ROOM * _SIZE, room.queries + head * filled
        _score(block, apart, row_size, of_turn, queries, filled, scores, room.parts)
        if cap > 0:
            _bend(scores, block.num, cap)
            _bend(scores + _ROOM * _SIZE, block.num, cap)
        _soften(scores, block.num, head, room)
        _soften(scores + _ROOM * _SIZE, block.num, head + 1, room)
    values = Block(block.slots, block.base + apart, block.num)
    for turn in range(num_turns):
        head, of_turn = 2 * turn, (turn, num_turns)
        powers, worths = room.scores + head * _ROOM * _SIZE, room.worths + head * _SIZE
        mixed = room.mixed + head * row_size
        _mix(values, soon, row_size, of_turn, (powers, worths), mixed)


@_inlined
def _score(block, apart, row_size, of_turn, queries, filled, scores, parts):
    """scores [2, room] of two heads; behind the last key, anything. Values are fetched meanwhile,
    by all turns of heads together."""
    slots, base, num = block
    if row_size >= HALF * _SIZE:
        _score_lanes(block, apart, row_size, of_turn, queries, filled, scores, parts, half(), HALF)
    elif row_size >= NARROW * _SIZE:
        of_lanes = narrow(), NARROW
        _score_lanes(block, apart, row_size, of_turn, queries, filled, scores, parts, *of_lanes)
    else:
        for j in range(num):
            x, y, key = single(), single(), base + slot(slots + j * _SIZE) * row_size
            for d in range(0, row_size, _SIZE):
                k = read(key + d, single())
                x = plus_products(x, k, read(queries + d, single()))
                y = plus_products(y, k, read(queries + filled + d, single()))
            write(scores + j * _SIZE, x)
            write(scores + (_ROOM + j) * _SIZE, y)


@_compiled
def _score_lanes(block, apart, row_size, of_turn, queries, filled, scores, parts, like, lanes):
    """The same by vectors like `like`. Where dim is no multiple of their lanes, the last one meets
    some columns again, as zeros."""
    (slots, base, num), (turn, num_turns) = block, of_turn
    size = lanes * _SIZE
    whole = row_size // (MANY * _SIZE) * (MANY * _SIZE) if lanes == HALF else 0
    wait, last = turn, slots + (num - 1) * _SIZE
    for j in range(0, num, _ROWS):
        at = slots + j * _SIZE
        k0 = base + slot(at) * row_size
        k1 = base + slot(min(at + _SIZE, last)) * row_size
        k2 = base + slot(min(at + 2 * _SIZE, last)) * row_size
        k3 = base + slot(min(at + 3 * _SIZE, last)) * row_size
        if wait == 0:
            wait = num_turns
            for d in range(apart, apart + row_size, _LINE):
                fetch(k0 + d)
                fetch(k1 + d)
                fetch(k2 + d)
                fetch(k3 + d)
        wait -= 1
        x0 = x1 = x2 = x3 = y0 = y1 = y2 = y3 = like
        for d in range(0, whole, MANY * _SIZE):
            x, y = read(queries + d, many()), read(queries + filled + d, many())
            k = read(k0 + d, many())
            x0, y0 = plus_products(x0, k, x), plus_products(y0, k, y)
            k = read(k1 + d, many())
            x1, y1 = plus_products(x1, k, x), plus_products(y1, k, y)
            k = read(k2 + d, many())
            x2, y2 = plus_products(x2, k, x), plus_products(y2, k, y)
            k = read(k3 + d, many())
            x3, y3 = plus_products(x3, k, x), plus_products(y3, k, y)
        for d in range(whole, row_size, size):
            x, y = read(queries + d, like), read(queries + filled + d, like)
            here = min(d, row_size - size)
            k = read(k0 + here, like)
            x0, y0 = plus_products(x0, k, x), plus_products(y0, k, y)
            k = read(k1 + here, like)
            x1, y1 = plus_products(x1, k, x), plus_products(y1, k, y)
            k = read(k2 + here, like)
            x2, y2 = plus_products(x2, k, x), plus_products(y2, k, y)
            k = read(k3 + here, like)
            x3, y3 = plus_products(x3, k, x), plus_products(y3, k, y)
        write(parts + j * size // _ROWS, in_fours(x0, x1, x2, x3))
        write(parts + (_ROOM + j) * size // _ROWS, in_fours(y0, y1, y2, y3))
    for j in range(0, num, lanes):
        write(scores + j * _SIZE, joined(parts + j * size // _ROWS, like))
        write(scores + (_ROOM + j) * _SIZE, joined(parts + (_ROOM + j) * size // _ROWS, like))


@_compiled
def _bend(scores, num, cap):
    """Softcap: cap * tanh(score / cap)."""
    bound, share = spread(np.float32(cap), wide()), spread(np.float32(1 / cap), wide())
    for at in range(scores, scores + num * _SIZE, LANES * _SIZE):
        write(at, times(bound, tanh(times(read(at, bound), share))))


@_compiled
def _soften(scores, num, head, room):
    """Scores of a head to powers below the highest so far; what those before are worth now."""
    peak, sums = room.peaks + head * _SIZE, room.sums + head * LANES * _SIZE
    end = scores + num * _SIZE
    for at in range(end, scores + (num + LANES - 1) // LANES * LANES * _SIZE, _SIZE):
        put(at, np.float32(-np.inf))
    before = spread(number(peak), wide())
    most = before
    for at in range(scores, end, LANES * _SIZE):
        most = larger(most, read(at, most))
    top = spread(highest(most), most)
    decay = exp2(minus(before, top))
    total = wide()  # of this block: many small powers would be lost one by one beside a large sum
    for at in range(scores, end, LANES * _SIZE):
        power = exp2(minus(read(at, top), top))
        total = plus(total, power)
        write(at, power)
    write(sums, plus_products(total, read(sums, top), decay))
    put(peak, highest(top))
    put(room.worths + head * _SIZE, highest(decay))


@_inlined
def _mix(block, soon, row_size, of_turn, of_two, mixed):
    """mixed [2, dim]: what it was for two heads, decayed, and the values of a block by their
    powers. Keys of the next block are fetched meanwhile."""
    d = 0
    while d + MANY * _SIZE <= row_size:
        _mix_many(block, soon, row_size, of_turn, of_two, mixed, d)
        d += MANY * _SIZE
    while d + WIDE * _SIZE <= row_size:
        _mix_lanes(block, soon, row_size, of_turn, of_two, mixed, d, wide(), WIDE)
        d += WIDE * _SIZE
    while d + NARROW * _SIZE <= row_size:
        _mix_lanes(block, soon, row_size, of_turn, of_two, mixed, d, narrow(), NARROW)
        d += NARROW * _SIZE
    while d < row_size:
        _mix_lanes(block, soon, row_size, of_turn, of_two, mixed, d, single(), 1)
        d += _SIZE


@_compiled
def _mix_many(block, soon, row_size, of_turn, of_two, mixed, d):
    """The columns from byte d on of a vector so long that its parts keep the processor busy."""
    (slots, base, num), (powers, worth), wait = block, of_two, of_turn[0]
    mixed, base = mixed + d, base + d
    x = y = many()
    for j in range(0, num * _SIZE, _SIZE):
        value = read(base + slot(slots + j) * row_size, many())
        wait = _fetch_one(soon, row_size, of_turn, wait, j, d, MANY)
        x = plus_scaled(x, powers + j, value)
        y = plus_scaled(y, powers + _ROOM * _SIZE + j, value)
    _fetch_rest(soon, row_size, of_turn, wait, num, d, MANY)
    _add(mixed, x, worth)
    _add(mixed + row_size, y, worth + _SIZE)


@_compiled
def _mix_lanes(block, soon, row_size, of_turn, of_two, mixed, d, like, lanes):
    """The same of a shorter vector, for two keys at a time."""
    (slots, base, num), (powers, worth), wait = block, of_two, of_turn[0]
    mixed, base, others = mixed + d, base + d, powers + _ROOM * _SIZE
    x0 = x1 = y0 = y1 = like
    for j in range(0, num // 2 * 2 * _SIZE, 2 * _SIZE):
        value = read(base + slot(slots + j) * row_size, like)
        wait = _fetch_one(soon, row_size, of_turn, wait, j, d, lanes)
        x0, y0 = plus_scaled(x0, powers + j, value), plus_scaled(y0, others + j, value)
        i = j + _SIZE
        value = read(base + slot(slots + i) * row_size, like)
        wait = _fetch_one(soon, row_size, of_turn, wait, i, d, lanes)
        x1, y1 = plus_scaled(x1, powers + i, value), plus_scaled(y1, others + i, value)
    if num % 2:
        j = (num - 1) * _SIZE
        value = read(base + slot(slots + j) * row_size, like)
        wait = _fetch_one(soon, row_size, of_turn, wait, j, d, lanes)
        x0, y0 = plus_scaled(x0, powers + j, value), plus_scaled(y0, others + j, value)
    _fetch_rest(soon, row_size, of_turn, wait, num, d, lanes)
    _add(mixed, plus(x0, x1), worth)
    _add(mixed + row_size, plus(y0, y1), worth + _SIZE)


@_inlined
def _add(mixed, x, worth):  # to what was mixed, which is worth so much yet
    write(mixed, plus_products(x, read(mixed, x), spread(number(worth), x)))


@_inlined
def _fetch_one(soon, row_size, of_turn, wait, j, d, lanes):
    """The columns of a key of the next block if it is this turn's; how many others come before the
    next that is."""
    slots, base, num = soon
    if wait == 0 and j < num * _SIZE:
        at = base + slot(slots + j) * row_size + d
        for line in range(0, lanes * _SIZE, _LINE):
            fetch(at + line)
    return wait - 1 if wait else of_turn[1] - 1


@_inlined
def _fetch_rest(soon, row_size, of_turn, wait, num, d, lanes):
    """Those of the keys from number `num` on."""
    for j in range(num * _SIZE, soon[2] * _SIZE, _SIZE):
        wait = _fetch_one(soon, row_size, of_turn, wait, j, d, lanes)


@_compiled
def _end(out, total, token, first_head, group, room):
    """What was mixed, and the log-sum-exp of the scores, go where they belong."""
    dim = out.shape[2]
    for i in range(group):
        whole = summed(read(room.sums + i * LANES * _SIZE, wide()))
        share, peak = np.float32(1) / whole, number(room.peaks + i * _SIZE)
        for d in range(dim):
            out[token, first_head + i, d] = number(room.mixed + (i * dim + d) * _SIZE) * share
        total[token, first_head + i] = (peak + np.log2(whole)) * _LOG2
