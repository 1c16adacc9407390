"""The layers of a decoder over few rows: compiled loops that call one another.

All that they read and write is handed over by address, in records of one layer and of one step.
`layers` reads as the layer's diagram. Rows are float32; keys and values are such numbers, or the
bits of bfloat16 ones (`layers_halved`). Only on a CPU; needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]

from ..jit import gates, norms, turns
from ..jit.addresses import enter, floats, ints, longs, numbers_like, record, records
from . import singles, slots
from .chains import CHAIN, LEAST
from .entries import MATRIX

# One layer. Norms and matrices (`entries.MATRIX`) are addresses; head_norm: 0 for none. feed: the
# address of a CHAIN of all that stands behind the attention, for many rows; 0 for none. read: which
# READ is its own.
LAYER = record(
    "attention_norm head_norm ffn_norm qkv out gate_up down feed"
    " hidden num_heads num_kv_heads dim ffn read",
    "eps scale",
)
# A step: x [rows, hidden], which is changed; turns [num_turns, dim]; positions and slots [rows];
# keys and values of the first layer [2, kv_heads, num_slots, dim] and how many bytes further on
# those of the next are; room for turns [rows, dim], for what stands between products and attention,
# and, of MOST rows, for what stands between products; and the step's READs, one for each window.
STEP = record(
    "rows x turns num_turns positions slots kv kv_step num_slots"
    " angles qkv seen total normed gate_up gated reads"
)
# What single tokens read, see `parts.TokenPart`.
READ = record("tokens table num_rows width rows firsts ends")
# A norm and the matrix behind it, by their addresses; hidden: numbers of a row.
END = record("norm matrix hidden", "eps")
ENTER, ATTEND, LEAVE = 1, 2, 4  # what `layers` does of each layer
MOST = 256  # rows that go from product to product while they are in near caches
_compiled = njit(error_model="numpy", nogil=True)
_layer_at, _step_at, _read_at = records(LAYER), records(STEP), records(READ)
_matrix_at, _chain_at, _end_at = records(MATRIX), records(CHAIN), records(END)
_normalize, _turn = _compiled(norms.normalize), _compiled(turns.turn)
_write, _attend, _silu_mul = (_compiled(f) for f in (slots.write, singles.attend, gates.silu_mul))


def layers(first_layer, first, last, step_at, parts):
    """Layers first:last of those that begin at an address, or some parts of each."""
    _layers(first_layer, first, last, step_at, parts, np.float32(0))


def layers_halved(first_layer, first, last, step_at, parts):
    """The same where keys and values are bfloat16."""
    _layers(first_layer, first, last, step_at, parts, np.uint16(0))


@_compiled
def _layers(first_layer, first, last, step_at, parts, kind):
    """kind: a number as the pool has them."""
    all_layers = carray(_layer_at(first_layer), last)
    step = carray(_step_at(step_at), 1)[0]
    if first == 0 and parts & ENTER:
        _collect_turns(step, all_layers[0].dim)
    for i in range(first, last):
        layer = all_layers[i]
        kv = step.kv + i * step.kv_step
        if parts & ENTER:
            for start in range(0, step.rows, MOST):
                _enter_attention(layer, step, (kv, kind), start, min(MOST, step.rows - start))
        if parts & ATTEND:
            _attend_singles(layer, step, (kv, kind))
        if parts & LEAVE:
            for start in range(0, step.rows, MOST):
                _leave_attention(layer, step, start, min(MOST, step.rows - start))


def end(end_at, x_at, rows, out_at, normed_at):
    """x [rows, hidden] -> norm -> matrix -> out; normed [rows, hidden] stands between these."""
    it = carray(_end_at(end_at), 1)[0]
    _norm(it, it.norm, x_at, rows, normed_at)
    _product(it.matrix, normed_at, rows, out_at, 0)


@_compiled
def _collect_turns(step, dim):
    """Of each row that at its position; NaN where there is none, which ends a sequence."""
    positions = carray(longs(step.positions), step.rows)
    turns = carray(floats(step.turns), (step.num_turns, dim))
    angles = carray(floats(step.angles), (step.rows, dim))
    for row in range(step.rows):
        position = positions[row]
        is_known = 0 <= position < step.num_turns
        for i in range(dim):
            angles[row, i] = turns[position, i] if is_known else np.float32(np.nan)


@_compiled
def _enter_attention(layer, step, kv, start, rows):
    """norm -> queries, keys and values -> norms of heads -> turns; keys and values go into their
    slots. For so many rows from `start` on."""
    num_turned, dim = layer.num_heads + layer.num_kv_heads, layer.dim
    num_heads = num_turned + layer.num_kv_heads
    qkv_at = _row(step.qkv, start, num_heads * dim)
    _norm(layer, layer.attention_norm, _row(step.x, start, layer.hidden), rows, step.normed)
    _product(layer.qkv, step.normed, rows, qkv_at, 0)
    qkv = carray(floats(qkv_at), (rows, num_heads, dim))
    turned = qkv[:, :num_turned]
    if layer.head_norm:
        weight = carray(floats(layer.head_norm), (num_turned, dim))
        _normalize(turned, weight, layer.eps, turned)
    _turn(turned, carray(floats(step.angles), (step.rows, dim))[start : start + rows])
    kv_at, kind = kv
    pool = carray(numbers_like(kv_at, kind), (2 * layer.num_kv_heads, step.num_slots, dim))
    places = carray(longs(step.slots), step.rows)[start : start + rows]
    _write(pool, places, qkv[:, layer.num_heads :])


@_compiled
def _attend_singles(layer, step, kv):
    read = carray(_read_at(step.reads), layer.read + 1)[layer.read]
    heads, kv_heads, dim, rows = layer.num_heads, layer.num_kv_heads, layer.dim, step.rows
    qkv = carray(floats(step.qkv), (rows, heads + 2 * kv_heads, dim))
    (kv_at, kind), places = kv, 2 * kv_heads * step.num_slots * dim
    pool = carray(numbers_like(kv_at, kind), (2 * kv_heads, step.num_slots, dim))
    _attend(
        qkv[:, :heads],
        pool[:kv_heads],
        carray(numbers_like(kv_at, kind), places)[places // 2 :],
        carray(floats(step.seen), (rows, heads, dim)),
        carray(floats(step.total), (rows, heads)),
        carray(longs(read.tokens), rows),
        carray(ints(read.table), (read.num_rows, read.width)),
        carray(ints(read.rows), rows),
        carray(ints(read.firsts), rows),
        carray(ints(read.ends), rows),
        layer.scale,
        np.float32(0),
        0,
        rows,
    )


@_compiled
def _leave_attention(layer, step, start, rows):
    """What was attended to -> out, and norm -> gate and up -> silu(gate) * up -> down, each added
    to x. For so many rows from `start` on."""
    ffn, x = layer.ffn, _row(step.x, start, layer.hidden)
    seen = _row(step.seen, start, layer.num_heads * layer.dim)
    _product(layer.out, seen, rows, x, 1)
    if layer.feed and rows >= LEAST:
        enter(carray(_chain_at(layer.feed), 1)[0].entry, layer.feed, x, rows, x, 1)
        return
    _norm(layer, layer.ffn_norm, x, rows, step.normed)
    _product(layer.gate_up, step.normed, rows, step.gate_up, 0)
    gated = carray(floats(step.gated), (rows, ffn))
    _silu_mul(carray(floats(step.gate_up), (rows, 2 * ffn)), gated)
    _product(layer.down, step.gated, rows, x, 1)


@_compiled
def _row(at, row, width):
    """The address of a row of so many float32 numbers."""
    return at + 4 * row * width


@_compiled
def _norm(sizes, weight, x_at, rows, normed_at):
    """x -> normed, of so many rows. sizes: a record with hidden and eps."""
    shape = rows, 1, sizes.hidden
    x, normed = carray(floats(x_at), shape), carray(floats(normed_at), shape)
    _normalize(x, carray(floats(weight), (1, sizes.hidden)), sizes.eps, normed)


@_compiled
def _product(matrix_at, x, rows, out, is_added):
    """x [rows, depth] times a matrix into out [rows, width], or added to it, by its entry."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    enter(matrix.entry, matrix_at, x, rows, out, is_added)
