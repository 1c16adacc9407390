"""Attention of many queries over bfloat16 keys and values, for processors that multiply tiles
(`amx`): compiled loops.

As `digit_tiles`, with queries and the softmax's powers rounded to bfloat16: two products of tiles
in place of sixteen. Sums are float32. All loops for bfloat16 keys round alike (`rounded_for`,
`rounded_weight`). Only
on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
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
    round_weights,
    write,
)
from ..jit.attention_lanes import SQUARE, few, turn
from ..jit.rounding import peak_for, weight_for
from ..jit.vectors import (
    exp2,
    fetch,
    fetch_far,
    larger,
    load,
    lowest,
    minus,
    plus,
    plus_products,
    single,
    spread,
    store,
    times,
)
from .digit_tiles import SOON, find_queries, room, unpack
from .tiles import BLOCK, LOWEST, bend, find, hide, longest, look

LANES = ROWS  # queries of a tile
LEAST = 1  # queries from which these are taken: sums of a query are the same for any number
MOST_TILES = 512 // LANES  # tiles that a block is read for, while it is in a near cache
MOST_DIM = 256
_TILE = ROWS * ROWS  # float32 numbers that take as much room as a tile
_WORDS = ROWS * DEPTH  # bfloat16 numbers of a tile
_STEPS = BLOCK // DEPTH  # tiles of powers
_compiled = njit(error_model="numpy", nogil=True, forceinline=True)


def fits(dim: int) -> bool:
    """Whether heads of such a dim can be read."""
    return dim % DEPTH == 0 and dim <= MOST_DIM


def attend(
    q, keys, values, out, total, table, rows, firsts, starts, ends, bounds, window, scale, cap,
    num_tiles, tokens, is_merged, least, least_not, part, num_parts,
):  # fmt: skip
    """As `tiles.attend`, for a dim that `fits`."""
    num_kv_heads, num_slots, dim = keys.shape
    group, keys_flat = q.shape[1] // num_kv_heads, keys.reshape(-1)
    most = (longest(bounds, least, least_not) * group + LANES - 1) // LANES
    most = min(most, num_tiles) * LANES
    rooms = (
        *(room(most * dim // 2), room(BLOCK * dim // 2), room(BLOCK * dim // 2)),
        *(room(BLOCK * dim // 2), room(_STEPS * _TILE), room((BLOCK + 1) * LANES)),
        *(room(most * dim), room(SQUARE * dim // 2), room(SQUARE * dim)),
        *(room(most), room(most), room(most), room(most)),
    )
    lists, count = (np.empty((2, BLOCK), np.int64), np.empty(most + SOON, np.int64)), 0
    q, keys_flat, values = bare(q), bare(keys_flat), bare(values)
    of_queries, of_keys, of_values = bare(rooms[0]), bare(rooms[1].view(np.uint16)), bare(rooms[2])
    paired, of_powers, scores = bare(rooms[3]), bare(rooms[4].view(np.uint16)), bare(rooms[5])
    mixed, rounded, rest = bare(rooms[6]), bare(rooms[7]), bare(rooms[8])
    peaks, sums, lows, highs = bare(rooms[9]), bare(rooms[10]), bare(rooms[11]), bare(rooms[12])
    packed, of_tile = (of_queries, of_keys, of_values, of_powers), (lows, highs)
    of_sums, places, of_q = (mixed, peaks, sums), bare(lists[0]), bare(lists[1])
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
                _pack(q, tokens, of_q, of_queries, rounded, scale, of_tiles)
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
                    _pack_keys(keys_flat, values, places[0], num, dim, of_keys)
                    _pack_values(keys_flat, values, places, num, dim, of_values, paired)
                    _meet((at, num, used, dim), packed, cap, of_tile, of_sums, scores)
                find_queries(of_q, out, tokens, of_tiles)
                unpack(of_sums, out, total, tokens, is_merged, of_tiles, of_q, rest)
    end()
    hold((rooms, lists))


@intrinsic
def _pair_rows(typing, words, first, second, numbers, to):
    """16 words of a flat uint16 array from one place on, and 16 from another, in pairs: as 16
    numbers of a flat float32 array from `to` on."""

    def emit(context, builder, signature, args):
        words, first, second, numbers, to = args
        shorts, ints = (ir.VectorType(ir.IntType(bits), ROWS) for bits in (16, 32))
        data = context.make_array(signature.args[0])(context, builder, words).data
        halves = []
        for at in (first, second):
            place = builder.bitcast(builder.gep(data, [at]), shorts.as_pointer())
            halves.append(builder.zext(builder.load(place, align=2), ints))
        upper = builder.shl(halves[1], ir.Constant(ints, [16] * ROWS))
        data = context.make_array(signature.args[3])(context, builder, numbers).data
        place = builder.bitcast(builder.gep(data, [to]), ints.as_pointer())
        builder.store(builder.or_(halves[0], upper), place, align=4)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.intp, numbers, types.intp), emit


@_compiled
def _pack(q, tokens, places, queries, rounded, scale, of_tiles):
    """queries: [tiles, dim / 2, 16 queries], each a pair of bfloat16 numbers, scaled; the last
    query fills up its tile. places: by `find_queries`. rounded: room for SQUARE queries."""
    start, used, first, first_head, group = of_tiles
    dim, is_even, words = q.shape[2], q.strides[2] == q.itemsize, rounded.view(np.uint16)
    share = spread(scale, few())
    for i in range((used + LANES - 1) // LANES * LANES):
        row = i % SQUARE
        if is_even:
            at, ahead = places[i], places[i + SOON]
            for d in range(0, dim, LANES):
                fetch(q, ahead + d)
                store(words, row * dim + d, times(load(q, at + d, share), share))
        else:
            query = start + min(i, used - 1)
            token, head = tokens[first + query // group], first_head + query % group
            for d in range(dim):
                store(words, row * dim + d, spread(q[token, head, d] * scale, single()))
        if row == SQUARE - 1:
            to = i // LANES * LANES * (dim // 2) + i % LANES - row
            for j in range(0, dim // 2, SQUARE):
                turn(rounded, j, dim // 2, queries, to + j * LANES, LANES)


@_compiled
def _pack_keys(keys, values, places, num, dim, words):
    """words: [keys / 16, dim / 32, 16 keys, 32]. Values come near."""
    for j in range((num + ROWS - 1) // ROWS * ROWS):
        to = j // ROWS * ROWS * dim + j % ROWS * DEPTH
        for d in range(0, dim, DEPTH):
            fetch(values, places[j] + d)
            copy_row(keys, places[j] + d, words, to + d * ROWS)


@_compiled
def _pack_values(keys, values, places, num, dim, numbers, paired):
    """numbers: [dim / 16, keys / 32, 16 columns, 16 pairs of keys]. paired: room for as many. What
    is read next, places[1], comes nearer."""
    for j in range(0, num, 2):
        for d in range(0, dim, DEPTH):
            fetch_far(keys, places[1, j] + d)
            fetch_far(keys, places[1, j + 1] + d)
            fetch_far(values, places[1, j] + d)
            fetch_far(values, places[1, j + 1] + d)
        for d in range(0, dim, ROWS):
            _pair_rows(values, places[0, j] + d, places[0, j + 1] + d, paired, j // 2 * dim + d)
    num_pairs = (num + DEPTH - 1) // DEPTH * ROWS
    paired[(num + 1) // 2 * dim : num_pairs * dim] = 0  # powers of zero times what is no number
    for pair in range(0, num_pairs, SQUARE):
        for d in range(0, dim, SQUARE):
            to = (d // ROWS * _STEPS + pair // ROWS) * _TILE + d % ROWS * ROWS + pair % ROWS
            turn(paired, pair * dim + d, dim, numbers, to, ROWS)


@_compiled
def _meet(at_block, packed, cap, of_tile, of_sums, scores):
    """A block, and the tiles of queries that see keys of it."""
    (at, num_keys, used, dim), (lows, highs) = at_block, of_tile
    of_queries, of_keys, of_values, of_powers = packed
    (mixed, peaks, sums), before, steps = of_sums, -1, 0
    for tile in range(0, used, LANES):
        last = tile + LANES - 1
        num = min(num_keys, int(highs[last]) - at)
        if num <= 0 or at + num <= lows[tile]:
            continue
        _score(of_keys, of_queries, tile, num, dim, scores)
        if before >= 0:  # not sooner: tiles would wait for powers that were just written
            _mix(of_values, of_powers, steps, before, dim, scores, mixed)
        if cap > 0:
            bend(scores, num, cap, few())
        if at < lows[last] or at + num > highs[tile]:
            hide(scores, num, lows, highs, tile, at, few())
        _soften(scores, num, peaks, sums, tile, of_powers)
        before, steps = tile, (num + DEPTH - 1) // DEPTH
    if before >= 0:
        _mix(of_values, of_powers, steps, before, dim, scores, mixed)


@_compiled
def _score(of_keys, of_queries, tile, num, dim, scores):
    """scores: [keys, 16 queries]; behind the last key, those of keys unasked."""
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


@_compiled
def _soften(scores, num, peaks, sums, tile, words):
    """Scores to powers below the highest so far, in words: [keys / 2, 16 queries, 2]. Behind the
    scores: what powers before are worth now."""
    before = p0 = p1 = p2 = p3 = load(peaks, tile, few())
    full = (num + 3) // 4 * 4
    for j in range(num, full):
        store(scores, j * LANES, spread(LOWEST, before))
    for j in range(0, full, 4):
        p0 = larger(p0, load(scores, j * LANES, before))
        p1 = larger(p1, load(scores, (j + 1) * LANES, before))
        p2 = larger(p2, load(scores, (j + 2) * LANES, before))
        p3 = larger(p3, load(scores, (j + 3) * LANES, before))
    peak = peak_for(larger(larger(p0, p1), larger(p2, p3)), np.uint16(0))
    worth = exp2(minus(before, peak))
    x = y = few()  # of this block: many small powers would be lost one by one beside a large sum
    for j in range(0, full, 2):
        first = weight_for(minus(load(scores, j * LANES, peak), peak), np.uint16(0))
        second = weight_for(minus(load(scores, (j + 1) * LANES, peak), peak), np.uint16(0))
        x, y = plus(x, first), plus(y, second)
        round_weights(first, second, words, j * LANES)
    for j in range(full, (num + DEPTH - 1) // DEPTH * DEPTH, 2):
        round_weights(few(), few(), words, j * LANES)
    store(peaks, tile, peak)
    store(sums, tile, plus_products(plus(x, y), load(sums, tile, peak), worth))
    store(scores, BLOCK * LANES, worth)


@_compiled
def _mix(of_values, of_powers, steps, tile, dim, scores, mixed):
    """mixed [tiles, dim, 16 queries]: what it was, decayed, and the values by their powers."""
    worth = load(scores, BLOCK * LANES, few())
    if lowest(worth) != 1:  # products by one change nothing
        for at in range(tile * dim, (tile + LANES) * dim, LANES):
            store(mixed, at, times(load(mixed, at, worth), worth))
    read(6, of_powers, 0, BYTES)
    if steps > 1:
        read(7, of_powers, _WORDS, BYTES)
    for d in range(0, dim, 2 * ROWS):
        at, left = tile * dim + d * LANES, d // ROWS * _STEPS * _TILE
        read(0, mixed, at, BYTES)
        read(1, mixed, at + _TILE, BYTES)
        read(4, of_values, left, BYTES)
        add_product(0, 4, 6)
        read(5, of_values, left + _STEPS * _TILE, BYTES)
        add_product(1, 5, 6)
        if steps > 1:
            read(4, of_values, left + _TILE, BYTES)
            add_product(0, 4, 7)
            read(5, of_values, left + (_STEPS + 1) * _TILE, BYTES)
            add_product(1, 5, 7)
        write(0, mixed, at, BYTES)
        write(1, mixed, at + _TILE, BYTES)
