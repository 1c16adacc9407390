"""Decode attention over bfloat16 keys and values, by AMX: compiled loops.

As `decode_attention`, with queries and softmax weights rounded to bfloat16. Blocks of keys that
neighbours have in common, a shared prefix, are read once for all of them. Queries and keys are
multiplied as tiles, and so are the weights and values of a shared block. Values of a single token
are multiplied by vectors, which sum in the order of AMX (of 32 keys, the even ones, the odd ones,
then both): a token gets the same bits whatever it shares. Loops take addresses, see
`vector_pointers`. Only on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ..jit.amx import (
    BYTES,
    DEPTH,
    ROWS,
    add_product,
    begin,
    begin_narrow,
    clear,
    end,
    pack_bf16,
    pack_pairs,
    read,
    spacing_of,
    unzip_1,
    unzip_2,
    unzip_4,
    unzip_8,
    unzip_16,
    write,
)
from ..jit.attention_lanes import few
from ..jit.rounding import rounded_for, rounded_weight, weight_for
from ..jit.vector_pointers import (
    MANY,
    fetch,
    fma_scalar,
    load_float,
    load_slot,
    many,
    read_as,
    store_float,
)
from ..jit.vector_pointers import read as load
from ..jit.vector_pointers import write as store
from ..jit.vectors import (
    exp2,
    highest,
    larger,
    minus,
    plus,
    spread,
    summed,
    tanh,
    times,
    wide,
)
from .attention_tiles import BLOCK, LOWEST

MAX_DIM = 256
MAX_QUERIES = 128  # whose common keys are read together
_SIZE, _LINE = 4, 64  # bytes of a float32 number or a slot, and of what a cache fetches at a time
_TILE = ROWS * BYTES  # bytes of a tile
_KIND = np.uint16(0)  # as keys and values are stored
_LOG2 = np.float32(np.log(2))
_compiled = njit(error_model="numpy", nogil=True)
_inlined = njit(error_model="numpy", nogil=True, forceinline=True)  # no call in an inner loop


class Block(NamedTuple):
    """Keys and values of a head: the address of their slots, those of slot 0, and how many."""

    slots: int
    keys: int
    values: int
    num: int


class Workspace(NamedTuple):
    """Addresses of intermediate results.

    queries: [dim / 2, stride], pairs of bfloat16 numbers; stride: bytes of a row. keys: [keys / 16,
    dim / 32, 16, 32] bfloat16, a copy of those whose slots are not evenly spaced. values: [keys /
    32, dim / 16, 16, 16], pairs of keys. products: [keys, columns] float32. scores: [columns, keys]
    float32, and weights, the same of bfloat16. rest: acc of a tile that is not full. acc: [queries,
    dim], row_max [queries] and row_sum [queries, 16]: the results so far.
    """

    queries: int
    stride: int
    keys: int
    values: int
    products: int
    scores: int
    weights: int
    rest: int
    acc: int
    row_max: int
    row_sum: int


def fits(dim: int) -> bool:
    """Whether heads of such a dim are supported."""
    return dim % DEPTH == 0 and dim <= MAX_DIM


def attend(
    q, keys, values, out, lse, tokens, table, rows, firsts, ends, scale, cap, start, stop
):  # fmt: skip
    """As `decode_attention.attend`, for a dim that `fits`."""
    num_kv_heads, num_slots, dim = keys.shape
    group, head_size = q.shape[1] // num_kv_heads, num_slots * dim * 2
    most = max(min(MAX_QUERIES // group, stop - start), 1)
    numbers = np.empty(_workspace_size(most * group, dim) // _SIZE + BYTES, np.float32)
    workspace = _workspace_at(_at(numbers) + -_at(numbers) % BYTES, most * group, dim)
    shared, reached = np.empty(stop - start, np.int64), np.empty(stop - start, np.int64)
    table_at, row_size, columns = _at(table), table.shape[1] * _SIZE, 1
    while columns < min(group, ROWS):
        columns *= 2
    for i in range(start, stop - 1):
        shared[i - start] = _shared(table, rows, firsts, ends, i)
    begin_narrow(columns)
    is_narrow = True
    for kv_head in range(num_kv_heads):  # so that shared keys stay in a near cache
        keys_at, values_at = _at(keys) + kv_head * head_size, _at(values) + kv_head * head_size
        first_head = kv_head * group
        for first in range(start, stop, most):
            last = min(first + most, stop)
            for i in range(first, last):
                reached[i - start] = firsts[i]
                row = (i - first) * group
                _begin(q, tokens[i], first_head, group, scale, row, workspace)
            i = first
            while i < last:
                at, until, num = reached[i - start], int(ends[i]), 1
                while i + num < last and shared[i + num - 1 - start] > at:
                    until = min(until, shared[i + num - 1 - start])
                    num += 1
                if is_narrow != (num == 1):
                    is_narrow = num == 1
                    if is_narrow:
                        begin_narrow(columns)
                    else:
                        begin(ROWS)
                slots, row = table_at + rows[i] * row_size, (i - first) * group
                while at < until:
                    size = min(BLOCK, ends[i] - at)
                    block = Block(slots + at * _SIZE, keys_at, values_at, size)
                    at += size
                    other, ahead = (i, 0) if at < ends[i] else (i + 1, 0)
                    if other == stop:  # the next head's; of the last one, any
                        other, ahead = start, head_size if kv_head + 1 < num_kv_heads else 0
                    key = at if other == i else int(firsts[other])
                    if i < other < last:
                        key = reached[other - start]
                    soon = Block(
                        table_at + rows[other] * row_size + key * _SIZE,
                        keys_at + ahead,
                        values_at + ahead,
                        min(BLOCK, ends[other] - key),
                    )
                    if is_narrow:
                        _attend_one(block, soon, dim, row, group, columns, cap, workspace)
                    else:
                        end_row = row + num * group
                        _attend_shared(block, soon, dim, row, end_row, cap, workspace)
                reached[i - start : i - start + num] = at
                i += at == ends[i]
            for i in range(first, last):
                _end(out, lse, tokens[i], first_head, group, (i - first) * group, workspace)
    end()
    numbers[0] = 0  # keeps the buffer alive until here: loops know its address only


@_inlined
def _at(array):
    """An address; signed, for numba makes a sum of a signed number and another a float."""
    return np.intp(array.ctypes.data)


@_inlined
def _workspace_size(num_queries, dim):
    return _workspace_at(0, num_queries, dim).row_sum + num_queries * BYTES


@_inlined
def _workspace_at(at, num_queries, dim):
    """The workspace from an address on, which is a multiple of BYTES."""
    stride = (num_queries + ROWS) // ROWS * BYTES  # the last tile may begin at the last query
    stride += BYTES
    keys = at + stride * (dim // 2)
    values = keys + BLOCK * dim * 2
    products = values + BLOCK * dim * 2
    scores = products + BLOCK * BYTES
    weights = scores + BLOCK * BYTES
    rest = weights + BLOCK * BYTES // 2
    acc = rest + ROWS * dim * _SIZE
    row_max = acc + num_queries * dim * _SIZE
    row_sum = row_max + (num_queries + ROWS - 1) // ROWS * BYTES
    return Workspace(
        at, stride, keys, values, products, scores, weights, rest, acc, row_max, row_sum
    )


@_compiled
def _shared(table, rows, firsts, ends, i):
    """Up to which key all blocks of token i are whole, and those of token i + 1 as well; 0: none
    are."""
    at, slots, others = int(firsts[i]), table[rows[i]], table[rows[i + 1]]
    if firsts[i + 1] != at:
        return 0
    while min(ends[i], ends[i + 1]) - at >= BLOCK:
        differing = 0
        for j in range(at, at + BLOCK):
            differing |= slots[j] ^ others[j]
        if differing:
            break
        at += BLOCK
    return at if at > firsts[i] else 0


@_compiled
def _begin(q, token, first_head, group, scale, row, workspace):
    """Scale and round a token's queries, and clear their results."""
    dim, words = q.shape[2], workspace.weights
    for head in range(first_head, first_head + group):
        for d in range(dim):
            store_float(workspace.scores + d * _SIZE, q[token, head, d] * scale)
        for d in range(0, dim, DEPTH):
            x, y = (
                load(workspace.scores + d * _SIZE, few()),
                load(workspace.scores + (d + ROWS) * _SIZE, few()),
            )
            pack_bf16(rounded_for(x, _KIND), rounded_for(y, _KIND), words + d * 2)
        for d in range(dim // 2):
            to = workspace.queries + d * workspace.stride + row * _SIZE
            store_float(to, load_float(words + d * _SIZE))
        for d in range(0, dim, ROWS):
            store(workspace.acc + (row * dim + d) * _SIZE, few())
        store_float(workspace.row_max + row * _SIZE, LOWEST)
        store(workspace.row_sum + row * BYTES, few())
        row += 1


@_compiled
def _attend_one(block, soon, dim, row, group, columns, cap, workspace):
    """A block of keys and a token's queries, from a row on. soon: the block to prefetch."""
    acc, scores = workspace.acc + row * dim * _SIZE, workspace.scores
    for first in range(0, group, ROWS):
        count, num_fetched = min(ROWS, group - first), 5 if first == 0 else 0
        _score(block, soon, dim, row + first, columns, cap, num_fetched, workspace)
        for r in range(count):
            if first == 0 and r < 2:
                _fetch(soon, 40 + 12 * r, 12, dim)
            _softmax_step(scores + r * BLOCK * _SIZE, block.num, row + first + r, dim, workspace)
        for r in range(first, first + count, 2):
            weights = scores + (r - first) * BLOCK * _SIZE
            others, other = weights + BLOCK * _SIZE, acc + (r + 1) * dim * _SIZE
            if r + 1 == group:  # the last head of an odd group: nobody reads the other's result
                others, other = weights, workspace.rest
            d, two_rows = 0, (weights, others, acc + r * dim * _SIZE, other)
            while d + MANY <= dim:
                _add_values(block, soon, dim, r == d == 0, d, two_rows, many())
                d += MANY
            while d < dim:
                _add_values(block, soon, dim, r == d == 0, d, two_rows, wide())
                d += DEPTH


@_compiled
def _score(block, soon, dim, row, columns, cap, num_fetched, workspace):
    """scores: of so many queries from a row on."""
    count, queries, size = (block.num + ROWS - 1) // ROWS, workspace.queries, columns * _SIZE
    s0, s1 = _spacing(block, 0, dim, workspace), _spacing(block, 1, dim, workspace)
    s2, s3 = _spacing(block, 2, dim, workspace), _spacing(block, 3, dim, workspace)
    clear(0)
    clear(1)
    clear(2)
    clear(3)
    for step in range(dim // DEPTH):
        at = queries + step * ROWS * workspace.stride + row * _SIZE
        read(6, at, 0, workspace.stride)
        _read_keys(block, 0, step, s0, dim, workspace)
        add_product(0, 4, 6)
        _fetch_some(soon, 4 * step, num_fetched, dim)
        if count > 1:
            _read_keys(block, 1, step, s1, dim, workspace)
            add_product(1, 4, 6)
            _fetch_some(soon, 4 * step + 1, num_fetched, dim)
        if count > 2:
            _read_keys(block, 2, step, s2, dim, workspace)
            add_product(2, 4, 6)
            _fetch_some(soon, 4 * step + 2, num_fetched, dim)
        if count > 3:
            _read_keys(block, 3, step, s3, dim, workspace)
            add_product(3, 4, 6)
            _fetch_some(soon, 4 * step + 3, num_fetched, dim)
    products = workspace.products
    write(0, products, 0, size)
    write(1, products + ROWS * size, 0, size)
    write(2, products + 2 * ROWS * size, 0, size)
    write(3, products + 3 * ROWS * size, 0, size)
    if cap > 0:
        bound, inverse = spread(np.float32(cap), few()), spread(np.float32(1 / cap), few())
        for at in range(products, products + BLOCK * size, BYTES):
            store(at, times(bound, tanh(times(load(at, bound), inverse))))
    for key in range(0, BLOCK, ROWS):
        scores = workspace.scores + key * _SIZE
        if columns == 1:
            unzip_1(products + key * size, scores, BLOCK)
        elif columns == 2:
            unzip_2(products + key * size, scores, BLOCK)
        elif columns == 4:
            unzip_4(products + key * size, scores, BLOCK)
        elif columns == 8:
            unzip_8(products + key * size, scores, BLOCK)
        else:
            unzip_16(products + key * size, scores, BLOCK)


@_inlined
def _spacing(block, tile, dim, workspace):
    """Bytes from each of a tile's 16 keys to the next; 0 where that differs, and the keys are
    copied."""
    first = tile * ROWS
    if first >= block.num:
        return 0
    if first + ROWS <= block.num:
        spacing = spacing_of(block.slots + first * _SIZE)
        if spacing:
            return spacing * dim * 2
    _copy_keys(block, first, dim, workspace)
    return 0


@_compiled
def _copy_keys(block, first, dim, workspace):
    """Copy 16 keys; behind the last one, it is repeated."""
    to = workspace.keys + first * dim * 2
    for j in range(first, first + ROWS):
        at = block.keys + load_slot(block.slots + min(j, block.num - 1) * _SIZE) * dim * 2
        for d in range(0, dim * 2, BYTES):
            store(to + d * ROWS + (j - first) * BYTES, load(at + d, few()))


@_inlined
def _read_keys(block, tile, step, spacing, dim, workspace):
    """16 keys, 32 columns of each, into tile 4."""
    if spacing:
        at = block.keys + load_slot(block.slots + tile * ROWS * _SIZE) * dim * 2
        read(4, at + step * BYTES, 0, spacing)
    else:
        read(4, workspace.keys + tile * ROWS * dim * 2 + step * _TILE, 0, BYTES)


@_compiled
def _softmax_step(scores, num, row, dim, workspace):
    """One step of online softmax for a query: its scores become weights, rounded to bfloat16,
    relative to the new row maximum; earlier results are rescaled where that is larger."""
    for j in range(num, BLOCK):
        store_float(scores + j * _SIZE, np.float32(-np.inf))
    row_max_at, row_sum_at = workspace.row_max + row * _SIZE, workspace.row_sum + row * BYTES
    x0, x1 = load(scores, few()), load(scores + BYTES, few())
    x2, x3 = load(scores + 2 * BYTES, few()), load(scores + 3 * BYTES, few())
    row_max, row_sum = load_float(row_max_at), load(row_sum_at, few())
    new_max = highest(larger(larger(x0, x1), larger(x2, x3)))
    if new_max > row_max:
        new_max = np.ceil(new_max)
        rescale = exp2(spread(row_max - new_max, few()))
        row_sum, row_max, acc = times(row_sum, rescale), new_max, workspace.acc + row * dim * _SIZE
        store_float(row_max_at, new_max)
        for at in range(acc, acc + dim * _SIZE, BYTES):
            store(at, times(load(at, rescale), rescale))
    top = spread(row_max, few())
    x0, x1 = weight_for(minus(x0, top), _KIND), weight_for(minus(x1, top), _KIND)
    x2, x3 = weight_for(minus(x2, top), _KIND), weight_for(minus(x3, top), _KIND)
    store(row_sum_at, plus(plus(plus(x0, x1), plus(x2, x3)), row_sum))
    store(scores, rounded_weight(x0, _KIND))
    store(scores + BYTES, rounded_weight(x1, _KIND))
    store(scores + 2 * BYTES, rounded_weight(x2, _KIND))
    store(scores + 3 * BYTES, rounded_weight(x3, _KIND))


@_compiled
def _add_values(block, soon, dim, is_fetching, d, two_rows, like):
    """Add the block's values by their weights to two rows of acc, some columns from d on.
    is_fetching: whether the values of the next block are prefetched."""
    (first, second, acc, other), size = two_rows, dim * 2
    base = block.values + d * 2
    for start in range(0, block.num, DEPTH):
        x0 = x1 = y0 = y1 = like
        for j in range(start, min(start + DEPTH, block.num - 1), 2):
            i = j + 1
            value = read_as(base + load_slot(block.slots + j * _SIZE) * size, _KIND, like)
            x0 = fma_scalar(x0, first + j * _SIZE, value)
            y0 = fma_scalar(y0, second + j * _SIZE, value)
            value = read_as(base + load_slot(block.slots + i * _SIZE) * size, _KIND, like)
            x1 = fma_scalar(x1, first + i * _SIZE, value)
            y1 = fma_scalar(y1, second + i * _SIZE, value)
            if is_fetching:
                _fetch(soon, BLOCK + j, 2, dim)
        if start + DEPTH > block.num and block.num % 2:
            j = block.num - 1
            value = read_as(base + load_slot(block.slots + j * _SIZE) * size, _KIND, like)
            x0 = fma_scalar(x0, first + j * _SIZE, value)
            y0 = fma_scalar(y0, second + j * _SIZE, value)
        at = acc + d * _SIZE
        store(at, plus(load(at, like), plus(x0, x1)))
        at = other + d * _SIZE
        store(at, plus(load(at, like), plus(y0, y1)))
    if is_fetching:
        for j in range(block.num // 2 * 2, BLOCK):
            _fetch(soon, BLOCK + j, 1, dim)


@_inlined
def _fetch_some(soon, part, num, dim):
    """Prefetch the first 8 * num keys of a block in 8 parts, so that memory is always busy."""
    if part < 8 and num:
        _fetch(soon, part * num, num, dim)


@_inlined
def _fetch(soon, first, num, dim):
    """Prefetch rows of a block, of which the keys are the first BLOCK, and the values follow."""
    begin_at, size = soon.keys if first < BLOCK else soon.values, dim * 2
    for i in range(first % BLOCK, first % BLOCK + num):
        at = begin_at + load_slot(soon.slots + min(i, soon.num - 1) * _SIZE) * size
        for line in range(at, at + size, 2 * _LINE):
            fetch(line)
            fetch(line + _LINE)


@_compiled
def _attend_shared(block, soon, dim, first, last, cap, workspace):
    """A whole block of keys, and the rows first:last of queries."""
    _pack_values(block, soon, dim, workspace)
    for row in range(first, last, ROWS):
        count, acc = min(ROWS, last - row), workspace.acc + row * dim * _SIZE
        _score(block, block, dim, row, ROWS, cap, 0, workspace)
        for r in range(count):
            _softmax_step(workspace.scores + r * BLOCK * _SIZE, BLOCK, row + r, dim, workspace)
        for at in range(0, count * BLOCK, DEPTH):
            x = load(workspace.scores + at * _SIZE, few())
            y = load(workspace.scores + (at + ROWS) * _SIZE, few())
            pack_bf16(x, y, workspace.weights + at * 2)
        if count == ROWS:
            _multiply_values(acc, dim, workspace)
            continue
        for at in range(0, count * dim * _SIZE, BYTES):
            store(workspace.rest + at, load(acc + at, few()))
        _multiply_values(workspace.rest, dim, workspace)
        for at in range(0, count * dim * _SIZE, BYTES):
            store(acc + at, load(workspace.rest + at, few()))


@_compiled
def _pack_values(block, soon, dim, workspace):
    """Values of a block in pairs of keys. The next block is prefetched."""
    for j in range(0, BLOCK, 2):
        at = block.values + load_slot(block.slots + j * _SIZE) * dim * 2
        other = block.values + load_slot(block.slots + (j + 1) * _SIZE) * dim * 2
        to = workspace.values + j // DEPTH * (dim // ROWS) * _TILE + j % DEPTH // 2 * BYTES
        for d in range(dim // ROWS):
            pack_pairs(at + d * DEPTH, other + d * DEPTH, to + d * _TILE)
        _fetch(soon, j, 2, dim)
        _fetch(soon, BLOCK + j, 2, dim)


@_compiled
def _multiply_values(acc, dim, workspace):
    """Add the packed values by the weights of 16 queries to so many rows of acc."""
    weights, step_size = workspace.weights, dim // ROWS * _TILE
    read(4, weights, 0, BLOCK * 2)
    read(5, weights + BYTES, 0, BLOCK * 2)
    for d in range(0, dim // ROWS, 2):
        at, values = acc + d * BYTES, workspace.values + d * _TILE
        read(0, at, 0, dim * _SIZE)
        read(1, at + BYTES, 0, dim * _SIZE)
        read(6, values, 0, BYTES)
        add_product(0, 4, 6)
        read(7, values + _TILE, 0, BYTES)
        add_product(1, 4, 7)
        read(6, values + step_size, 0, BYTES)
        add_product(0, 5, 6)
        read(7, values + step_size + _TILE, 0, BYTES)
        add_product(1, 5, 7)
        write(0, at, 0, dim * _SIZE)
        write(1, at + BYTES, 0, dim * _SIZE)


@_compiled
def _end(out, lse, token, first_head, group, row, workspace):
    """Write the normalized output and the log-sum-exp of the scores."""
    dim = out.shape[2]
    for i in range(group):
        whole = summed(load(workspace.row_sum + (row + i) * BYTES, few()))
        scale, acc = np.float32(1) / whole, workspace.acc + (row + i) * dim * _SIZE
        for d in range(dim):
            out[token, first_head + i, d] = load_float(acc + d * _SIZE) * scale
        row_max = load_float(workspace.row_max + (row + i) * _SIZE)
        lse[token, first_head + i] = (row_max + np.log2(whole)) * _LOG2
