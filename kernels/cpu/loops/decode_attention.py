"""Decode attention: one new token of each sequence over keys in any slots, read in place: compiled
loops.

Two heads of a group at a time are scored against blocks of keys, with an online softmax from block
to block. While a block's keys are read its values are prefetched, and while these are read the next
block's keys, so that memory is always busy. Loops take addresses, see `vector_pointers`. Keys and
values are float32 numbers, or the bits of bfloat16 ones. Only on a CPU; needs numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit.callees import callee, inlined_callee
from ..jit.rounding import rounded_for, rounded_weight, row_max_for, weight_for
from ..jit.vector_pointers import (
    HALF,
    MANY,
    fetch,
    fma_parts,
    fma_scalar,
    half,
    in_bytes,
    interleave_sums,
    load_float,
    load_slot,
    many,
    read,
    read_as,
    reduce_interleaved,
    store_float,
    write,
    zero_like,
)
from ..jit.vectors import (
    NARROW,
    STORED,
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
from .decode_workspace import BLOCK, LANES, MAX_BLOCK, ROWS, SIZE, filled_dim, workspace_at

_LINE = 64  # bytes that a cache fetches at a time
_LOWEST = np.float32(-3e38)  # below all scores; -inf would give NaN where every key is masked
_LOG2 = np.float32(np.log(2))
_INTS = "int32[::1]"
_SIGNATURE = (
    "void(float32[:, :, :], {0}[:, :, ::1], {0}[::1], float32[:, :, ::1], float32[:, ::1],"
    f" int64[::1], int32[:, ::1], {_INTS}, {_INTS}, {_INTS}, float32, float32, int64, int64)"
)
SIGNATURES = {name: _SIGNATURE.format(stored) for name, stored in STORED.items()}


class Block(NamedTuple):
    """Keys or values: where their list of slots is, where slot 0 is, and how many there are."""

    slots: int
    base: int
    num: int


def attend(
    q, keys, values, out, lse, tokens, table, rows, firsts, ends, scale, cap, start, stop
):  # fmt: skip
    """Attention of the tokens tokens[start:stop] of q [tokens, heads, dim], each over the keys
    firsts:ends in the slots of its row of the table.

    keys: [kv_heads, slots, dim]; values: [kv_heads * slots * dim] of the same. scale: of scores to
    base 2. cap: softcap of these; 0: none. Writes the same tokens of out [tokens, heads, dim] and
    of lse [tokens, heads], the log-sum-exp of the scores.
    """
    num_kv_heads, num_slots, dim = keys.shape
    group, row_size, kind = q.shape[1] // num_kv_heads, dim * SIZE, zero_like(keys)
    numbers = np.zeros(workspace_at(0, group, dim).end // SIZE + _LINE, np.float32)
    workspace = workspace_at(_at(numbers) + -_at(numbers) % _LINE, group, dim)
    table_at, table_step = _at(table), table.shape[1] * SIZE
    head_size, v_offset = num_slots * in_bytes(row_size, kind), _at(values) - _at(keys)
    for kv_head in range(num_kv_heads):  # so that shared keys stay in a near cache
        base = _at(keys) + kv_head * head_size
        for i in range(start, stop):
            at, end, slots = firsts[i], ends[i], table_at + rows[i] * table_step
            _begin(q, tokens[i], kv_head * group, group, (scale, kind), workspace)
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
                _attend_block(block, soon, v_offset, (row_size, kind), group, cap, workspace)
            _end(out, lse, tokens[i], kv_head * group, group, workspace)
    numbers[0] = 0  # keeps the buffer alive until here: loops know its address only


@inlined_callee
def _at(array):
    """An address; signed, for numba makes a sum of a signed number and another a float."""
    return np.intp(array.ctypes.data)


@inlined_callee
def _size(left):
    """Keys of the next block, of so many that are left."""
    return BLOCK if left >= MAX_BLOCK else left


@callee
def _begin(q, token, first_head, group, of_scores, workspace):
    """Load and scale queries, and clear acc; for an odd number of heads the last one is loaded
    twice. A query's padding precedes its last vector, see `_score_lanes`."""
    dim, even = q.shape[2], group + group % 2
    filled, lanes = filled_dim(dim), HALF if dim >= HALF else NARROW
    whole = dim // lanes * lanes if dim >= NARROW else dim
    for i in range(even):
        head, at = first_head + min(i, group - 1), workspace.queries + i * filled * SIZE
        for d in range(whole):
            write(at + d * SIZE, _scaled(q, token, head, d, of_scores))
        for d in range(whole, dim):
            write(at + (d + filled - dim) * SIZE, _scaled(q, token, head, d, of_scores))
        store_float(workspace.row_max + i * SIZE, _LOWEST)
        write(workspace.row_sum + i * LANES * SIZE, wide())
    for i in range(even * dim):
        store_float(workspace.acc + i * SIZE, np.float32(0))


@inlined_callee
def _scaled(q, token, head, d, of_scores):
    scale, kind = of_scores
    return rounded_for(spread(q[token, head, d] * scale, single()), kind)


@inlined_callee
def _attend_block(block, soon, v_offset, of_row, group, cap, workspace):
    """All heads of a group over a block of keys; the values lie `v_offset` bytes behind them. soon:
    the next block's keys. of_row: bytes of a row as float32, and a number as rows of keys and
    values have it."""
    row_size, filled = of_row[0], filled_dim(of_row[0] // SIZE) * SIZE
    num_pairs = (group + 1) // 2
    for pair in range(num_pairs):
        head, of_pair = 2 * pair, (pair, num_pairs)
        scores, queries = (
            workspace.scores + head * MAX_BLOCK * SIZE,
            workspace.queries + head * filled,
        )
        _score(block, v_offset, of_row, of_pair, queries, filled, scores, workspace.partial_sums)
        if cap > 0:
            _apply_softcap(scores, block.num, cap)
            _apply_softcap(scores + MAX_BLOCK * SIZE, block.num, cap)
        _softmax_step(scores, block.num, head, workspace, of_row[1])
        _softmax_step(scores + MAX_BLOCK * SIZE, block.num, head + 1, workspace, of_row[1])
    values = Block(block.slots, block.base + v_offset, block.num)
    for pair in range(num_pairs):
        head, of_pair = 2 * pair, (pair, num_pairs)
        weights, rescale = (
            workspace.scores + head * MAX_BLOCK * SIZE,
            workspace.rescale + head * SIZE,
        )
        acc = workspace.acc + head * row_size
        _accumulate_values(values, soon, of_row, of_pair, (weights, rescale), acc)


@inlined_callee
def _score(block, v_offset, of_row, of_pair, queries, filled, scores, partial_sums):
    """scores [2, MAX_BLOCK] of two heads; behind the last key, anything. Values are prefetched
    meanwhile, by all pairs of heads together."""
    (slots, base, num), (row_size, kind) = block, of_row
    if row_size >= HALF * SIZE:
        of_lanes = half(), HALF
        _score_lanes(
            block, v_offset, of_row, of_pair, queries, filled, scores, partial_sums, *of_lanes
        )
    elif row_size >= NARROW * SIZE:
        of_lanes = narrow(), NARROW
        _score_lanes(
            block, v_offset, of_row, of_pair, queries, filled, scores, partial_sums, *of_lanes
        )
    else:
        for j in range(num):
            x, y = single(), single()
            key = base + load_slot(slots + j * SIZE) * in_bytes(row_size, kind)
            for d in range(0, row_size, SIZE):
                k = read_as(key + in_bytes(d, kind), kind, single())
                x = fma_parts(x, k, read(queries + d, single()))
                y = fma_parts(y, k, read(queries + filled + d, single()))
            write(scores + j * SIZE, x)
            write(scores + (MAX_BLOCK + j) * SIZE, y)


@callee
def _score_lanes(
    block, v_offset, of_row, of_pair, queries, filled, scores, partial_sums, like, lanes
):
    """The same by vectors like `like`. Where dim is not a multiple of their lanes, the last vector
    overlaps the one before, with zeros in the query there."""
    (slots, base, num), (pair, num_pairs), (row_size, kind) = block, of_pair, of_row
    size, key_size = lanes * SIZE, in_bytes(row_size, kind)
    whole = row_size // (MANY * SIZE) * (MANY * SIZE) if lanes == HALF else 0
    wait, last = pair, slots + (num - 1) * SIZE
    for j in range(0, num, ROWS):
        at = slots + j * SIZE
        k0 = base + load_slot(at) * key_size
        k1 = base + load_slot(min(at + SIZE, last)) * key_size
        k2 = base + load_slot(min(at + 2 * SIZE, last)) * key_size
        k3 = base + load_slot(min(at + 3 * SIZE, last)) * key_size
        if wait == 0:
            wait = num_pairs
            for d in range(v_offset, v_offset + key_size, _LINE):
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
            x0, y0 = fma_parts(x0, k, x), fma_parts(y0, k, y)
            k = read_as(k1 + here, kind, many())
            x1, y1 = fma_parts(x1, k, x), fma_parts(y1, k, y)
            k = read_as(k2 + here, kind, many())
            x2, y2 = fma_parts(x2, k, x), fma_parts(y2, k, y)
            k = read_as(k3 + here, kind, many())
            x3, y3 = fma_parts(x3, k, x), fma_parts(y3, k, y)
        for d in range(whole, row_size, size):
            x, y = read(queries + d, like), read(queries + filled + d, like)
            here = in_bytes(min(d, row_size - size), kind)
            k = read_as(k0 + here, kind, like)
            x0, y0 = fma_parts(x0, k, x), fma_parts(y0, k, y)
            k = read_as(k1 + here, kind, like)
            x1, y1 = fma_parts(x1, k, x), fma_parts(y1, k, y)
            k = read_as(k2 + here, kind, like)
            x2, y2 = fma_parts(x2, k, x), fma_parts(y2, k, y)
            k = read_as(k3 + here, kind, like)
            x3, y3 = fma_parts(x3, k, x), fma_parts(y3, k, y)
        write(partial_sums + j * size // ROWS, interleave_sums(x0, x1, x2, x3))
        write(partial_sums + (MAX_BLOCK + j) * size // ROWS, interleave_sums(y0, y1, y2, y3))
    for j in range(0, num, lanes):
        write(scores + j * SIZE, reduce_interleaved(partial_sums + j * size // ROWS, like))
        write(
            scores + (MAX_BLOCK + j) * SIZE,
            reduce_interleaved(partial_sums + (MAX_BLOCK + j) * size // ROWS, like),
        )


@callee
def _apply_softcap(scores, num, cap):
    """cap * tanh(score / cap)."""
    bound, inverse = spread(np.float32(cap), wide()), spread(np.float32(1 / cap), wide())
    for at in range(scores, scores + num * SIZE, LANES * SIZE):
        write(at, times(bound, tanh(times(read(at, bound), inverse))))


@callee
def _softmax_step(scores, num, head, workspace, kind):
    """One step of online softmax for a head: scores become weights relative to the new row maximum;
    writes row_sum, row_max and the rescale factor for earlier results."""
    row_max, row_sum = workspace.row_max + head * SIZE, workspace.row_sum + head * LANES * SIZE
    end = scores + num * SIZE
    for at in range(end, scores + (num + LANES - 1) // LANES * LANES * SIZE, SIZE):
        store_float(at, np.float32(-np.inf))
    old_max = spread(load_float(row_max), wide())
    most = old_max
    for at in range(scores, end, LANES * SIZE):
        most = larger(most, read(at, most))
    new_max = row_max_for(spread(highest(most), most), kind)
    rescale = exp2(minus(old_max, new_max))
    block_sum = wide()  # small weights added one by one to a large sum would be lost
    for at in range(scores, end, LANES * SIZE):
        weight = weight_for(minus(read(at, new_max), new_max), kind)
        block_sum = plus(block_sum, weight)
        write(at, rounded_weight(weight, kind))
    write(row_sum, fma_parts(block_sum, read(row_sum, new_max), rescale))
    store_float(row_max, highest(new_max))
    store_float(workspace.rescale + head * SIZE, highest(rescale))


@inlined_callee
def _accumulate_values(block, soon, of_row, of_pair, of_two, acc):
    """acc [2, dim] of two heads: rescaled, plus the block's values by their weights. Keys of the
    next block are prefetched meanwhile."""
    (row_size, _), d = of_row, 0
    while d + MANY * SIZE <= row_size:
        _accumulate_many(block, soon, of_row, of_pair, of_two, acc, d)
        d += MANY * SIZE
    while d + WIDE * SIZE <= row_size:
        _accumulate_lanes(block, soon, of_row, of_pair, of_two, acc, d, wide(), WIDE)
        d += WIDE * SIZE
    while d + NARROW * SIZE <= row_size:
        _accumulate_lanes(block, soon, of_row, of_pair, of_two, acc, d, narrow(), NARROW)
        d += NARROW * SIZE
    while d < row_size:
        _accumulate_lanes(block, soon, of_row, of_pair, of_two, acc, d, single(), 1)
        d += SIZE


@callee
def _accumulate_many(block, soon, of_row, of_pair, of_two, acc, d):
    """The columns from byte d on of a vector so long that its parts keep the processor busy."""
    (slots, base, num), (weights, rescale), wait = block, of_two, of_pair[0]
    row_size, kind = of_row
    acc, base, value_size = acc + d, base + in_bytes(d, kind), in_bytes(row_size, kind)
    x = y = many()
    for j in range(0, num * SIZE, SIZE):
        value = read_as(base + load_slot(slots + j) * value_size, kind, many())
        wait = _fetch_one(soon, of_row, of_pair, wait, j, d, MANY)
        x = fma_scalar(x, weights + j, value)
        y = fma_scalar(y, weights + MAX_BLOCK * SIZE + j, value)
    _fetch_rest(soon, of_row, of_pair, wait, num, d, MANY)
    _rescale_add(acc, x, rescale)
    _rescale_add(acc + row_size, y, rescale + SIZE)


@callee
def _accumulate_lanes(block, soon, of_row, of_pair, of_two, acc, d, like, lanes):
    """The same of a shorter vector, for two keys at a time."""
    (slots, base, num), (weights, rescale), wait = block, of_two, of_pair[0]
    (row_size, kind), others = of_row, weights + MAX_BLOCK * SIZE
    acc, base, value_size = acc + d, base + in_bytes(d, kind), in_bytes(row_size, kind)
    x0 = x1 = y0 = y1 = like
    for j in range(0, num // 2 * 2 * SIZE, 2 * SIZE):
        value = read_as(base + load_slot(slots + j) * value_size, kind, like)
        wait = _fetch_one(soon, of_row, of_pair, wait, j, d, lanes)
        x0, y0 = fma_scalar(x0, weights + j, value), fma_scalar(y0, others + j, value)
        i = j + SIZE
        value = read_as(base + load_slot(slots + i) * value_size, kind, like)
        wait = _fetch_one(soon, of_row, of_pair, wait, i, d, lanes)
        x1, y1 = fma_scalar(x1, weights + i, value), fma_scalar(y1, others + i, value)
    if num % 2:
        j = (num - 1) * SIZE
        value = read_as(base + load_slot(slots + j) * value_size, kind, like)
        wait = _fetch_one(soon, of_row, of_pair, wait, j, d, lanes)
        x0, y0 = fma_scalar(x0, weights + j, value), fma_scalar(y0, others + j, value)
    _fetch_rest(soon, of_row, of_pair, wait, num, d, lanes)
    _rescale_add(acc, plus(x0, x1), rescale)
    _rescale_add(acc + row_size, plus(y0, y1), rescale + SIZE)


@inlined_callee
def _rescale_add(acc, x, rescale):
    write(acc, fma_parts(x, read(acc, x), spread(load_float(rescale), x)))


@inlined_callee
def _fetch_one(soon, of_row, of_pair, wait, j, d, lanes):
    """Prefetch the columns of a key of the next block if it is this pair's; gives how many others
    come before the next that is."""
    (slots, base, num), (row_size, kind) = soon, of_row
    if wait == 0 and j < num * SIZE:
        at = base + load_slot(slots + j) * in_bytes(row_size, kind) + in_bytes(d, kind)
        for line in range(0, in_bytes(lanes * SIZE, kind), _LINE):
            fetch(at + line)
    return wait - 1 if wait else of_pair[1] - 1


@inlined_callee
def _fetch_rest(soon, of_row, of_pair, wait, num, d, lanes):
    """Prefetch those of the keys from number `num` on."""
    for j in range(num * SIZE, soon[2] * SIZE, SIZE):
        wait = _fetch_one(soon, of_row, of_pair, wait, j, d, lanes)


@callee
def _end(out, lse, token, first_head, group, workspace):
    """Write the normalized output and the log-sum-exp of the scores."""
    dim = out.shape[2]
    for i in range(group):
        whole = summed(read(workspace.row_sum + i * LANES * SIZE, wide()))
        scale, row_max = np.float32(1) / whole, load_float(workspace.row_max + i * SIZE)
        for d in range(dim):
            out[token, first_head + i, d] = load_float(workspace.acc + (i * dim + d) * SIZE) * scale
        lse[token, first_head + i] = (row_max + np.log2(whole)) * _LOG2
