"""The layers of a decoder over few rows: compiled loops that call one another.

All inputs and outputs are passed by address, in records of one layer and of one step. `layers`
reads as the layer's diagram. Rows are float32; keys and values are float32, or the bits of bfloat16
numbers (`layers_bf16`, and `layers_bf16_amx` where AMX reads them). Only on a CPU; needs numba.
"""

from __future__ import annotations

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from ..jit import rows as row_loops
from ..jit.addresses import enter, floats, ints, longs, numbers_like, record, records
from ..jit.callees import callee
from . import amx_decode_attention, decode_attention, extend_attention, slots
from .entries import MATRIX
from .fused_mlp import FUSED_MLP, LEAST

# One layer. Norms and matrices (`entries.MATRIX`) are addresses; head_norm: 0 for none. mlp: the
# address of a FUSED_MLP, the feed-forward for many rows; 0 for none. read: the index of its READ.
LAYER = record(
    "attention_norm head_norm ffn_norm qkv out gate_up down mlp"
    " hidden num_heads num_kv_heads dim ffn read",
    "eps scale",
)
# A step: x [rows, hidden], which is changed; cos_sin_cache [num_positions, dim]; positions and
# slots [rows]; keys and values of the first layer [2, kv_heads, num_slots, dim] and the offset in
# bytes of the next layer's; buffers for cos_sin [rows, dim], for inputs and outputs of attention,
# and, of MOST rows, for results between linear layers; and the step's READs, one for each window.
STEP = record(
    "rows x cos_sin_cache num_positions positions slots kv kv_step num_slots"
    " cos_sin qkv attn_out lse normed gate_up gated reads"
)
# What a step reads: so many decode tokens (`work_items.DecodeItem`), and then each of its ITEMs.
READ = record("num_tokens tokens table num_rows width rows firsts ends items num_items")
# What several new tokens of sequences read (`work_items.ExtendItem`), and the loop that computes it
# (`extend_f32`, `extend_bf16`). is_merged: with what is there.
ITEM = record(
    "entry num_sequences num_tokens tokens table num_rows width rows firsts starts ends bounds"
    " window is_merged"
)
# A norm and the matrix after it, by their addresses; hidden: numbers of a row.
END = record("norm matrix hidden", "eps")
ENTER, ATTEND, LEAVE = 1, 2, 4  # what `layers` does of each layer
ENTER_NEXT = 8  # and of the layer behind the last
_LAYER_SIZE, _ITEM_SIZE = LAYER.itemsize, ITEM.itemsize
_ENDLESS = 1 << 30
MOST = 256  # rows that pass from one linear layer to the next in near caches
_layer_at, _step_at, _read_at = records(LAYER), records(STEP), records(READ)
_item_at = records(ITEM)
_matrix_at, _mlp_at, _end_at = records(MATRIX), records(FUSED_MLP), records(END)
_normalize, _apply_rotary = callee(row_loops.normalize), callee(row_loops.apply_rotary)
_write, _silu_mul = callee(slots.write), callee(row_loops.silu_mul)
_attend, _attend_amx = callee(decode_attention.attend), callee(amx_decode_attention.attend)
_extend = callee(extend_attention.attend)


def end(end_at, x_at, rows, out_at, normed_at):
    """x [rows, hidden] -> norm -> matrix -> out; normed [rows, hidden] is the intermediate
    result."""
    it = carray(_end_at(end_at), 1)[0]
    _norm(it, it.norm, x_at, rows, normed_at)
    _linear(it.matrix, normed_at, rows, out_at, 0)


@callee
def _gather_cos_sin(step, dim):
    """Rotary factors of each row by its position; NaN for a position out of range, which ends a
    sequence."""
    positions = carray(longs(step.positions), step.rows)
    cos_sin_cache = carray(floats(step.cos_sin_cache), (step.num_positions, dim))
    cos_sin = carray(floats(step.cos_sin), (step.rows, dim))
    for row in range(step.rows):
        position = positions[row]
        is_known = 0 <= position < step.num_positions
        for i in range(dim):
            cos_sin[row, i] = cos_sin_cache[position, i] if is_known else np.float32(np.nan)


@callee
def _enter_attention(layer, step, kv, start, rows):
    """norm -> queries, keys and values -> norms of heads -> rotary; keys and values are written
    into their slots. For so many rows from `start` on."""
    num_rotated, dim = layer.num_heads + layer.num_kv_heads, layer.dim
    num_heads = num_rotated + layer.num_kv_heads
    qkv_at = _row(step.qkv, start, num_heads * dim)
    _norm(layer, layer.attention_norm, _row(step.x, start, layer.hidden), rows, step.normed)
    _linear(layer.qkv, step.normed, rows, qkv_at, 0)
    qkv = carray(floats(qkv_at), (rows, num_heads, dim))
    rotated = qkv[:, :num_rotated]
    if layer.head_norm:
        weight = carray(floats(layer.head_norm), (num_rotated, dim))
        _normalize(rotated, weight, layer.eps, rotated)
    _apply_rotary(rotated, carray(floats(step.cos_sin), (step.rows, dim))[start : start + rows])
    kv_at, kind = kv
    pool = carray(numbers_like(kv_at, kind), (2 * layer.num_kv_heads, step.num_slots, dim))
    kv_size = carray(longs(step.slots), step.rows)[start : start + rows]
    _write(pool, kv_size, qkv[:, layer.num_heads :])


@callee
def _leave_attention(layer, step, start, rows):
    """Attention's output -> out, and norm -> gate and up -> silu(gate) * up -> down, each added to
    x. For so many rows from `start` on."""
    ffn, x = layer.ffn, _row(step.x, start, layer.hidden)
    attn_out = _row(step.attn_out, start, layer.num_heads * layer.dim)
    _linear(layer.out, attn_out, rows, x, 1)
    if layer.mlp and rows >= LEAST:
        enter(carray(_mlp_at(layer.mlp), 1)[0].entry, layer.mlp, x, rows, x, 1)
        return
    _norm(layer, layer.ffn_norm, x, rows, step.normed)
    _linear(layer.gate_up, step.normed, rows, step.gate_up, 0)
    gated = carray(floats(step.gated), (rows, ffn))
    _silu_mul(carray(floats(step.gate_up), (rows, 2 * ffn)), gated)
    _linear(layer.down, step.gated, rows, x, 1)


@callee
def _row(at, row, width):
    """The address of a row of so many float32 numbers."""
    return at + 4 * row * width


@callee
def _norm(sizes, weight, x_at, rows, normed_at):
    """x -> normed, of so many rows. sizes: a record with hidden and eps."""
    shape = rows, 1, sizes.hidden
    x, normed = carray(floats(x_at), shape), carray(floats(normed_at), shape)
    _normalize(x, carray(floats(weight), (1, sizes.hidden)), sizes.eps, normed)


@callee
def _linear(matrix_at, x, rows, out, is_added):
    """out [rows, width] = x [rows, depth] times a matrix, or added to it, by its entry."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    enter(matrix.entry, matrix_at, x, rows, out, is_added)


@callee
def _attention_arrays(layer, step, kv_at, kind):
    """What attention reads and writes in a layer of a step: queries, keys, values [kv_heads * slots
    * dim], output and log-sum-exp. kv_at: the layer's keys and values. kind: a number like a key.
    """
    heads, kv_heads, dim = layer.num_heads, layer.num_kv_heads, layer.dim
    qkv = carray(floats(step.qkv), (step.rows, heads + 2 * kv_heads, dim))
    kv_size = 2 * kv_heads * step.num_slots * dim
    pool = carray(numbers_like(kv_at, kind), (2 * kv_heads, step.num_slots, dim))
    values = carray(numbers_like(kv_at, kind), kv_size)[kv_size // 2 :]
    attn_out = carray(floats(step.attn_out), (step.rows, heads, dim))
    lse = carray(floats(step.lse), (step.rows, heads))
    return qkv[:, :heads], pool[:kv_heads], values, attn_out, lse


def _layers_by(attend):
    """The loop over layers, or over some stages of each, with this loop of decode attention."""

    @callee
    def attend_decode(layer, step, read, kv):
        num = read.num_tokens
        attend(
            *_attention_arrays(layer, step, *kv),
            carray(longs(read.tokens), num),
            carray(ints(read.table), (read.num_rows, read.width)),
            carray(ints(read.rows), num),
            carray(ints(read.firsts), num),
            carray(ints(read.ends), num),
            layer.scale,
            np.float32(0),
            0,
            num,
        )

    @callee
    def attend_all(layer_at, layer, step_at, step, kv):
        read = carray(_read_at(step.reads), layer.read + 1)[layer.read]
        if read.num_tokens:
            attend_decode(layer, step, read, kv)
        for i in range(read.num_items):
            item_at = read.items + i * _ITEM_SIZE
            item = carray(_item_at(item_at), 1)[0]
            enter(item.entry, item_at, layer_at, step_at, kv[0], 0)

    @callee
    def run(first_layer, first, last, step_at, stages, kind):
        all_layers = carray(_layer_at(first_layer), last + 1)
        step = carray(_step_at(step_at), 1)[0]
        if first == 0 and stages & ENTER:
            _gather_cos_sin(step, all_layers[0].dim)
        end = last + 1 if stages & ENTER_NEXT else last
        for i in range(first, end):
            layer = all_layers[i]
            kv = step.kv + i * step.kv_step
            if stages & ENTER or i == last:
                for start in range(0, step.rows, MOST):
                    rows = min(MOST, step.rows - start)
                    _enter_attention(layer, step, (kv, kind), start, rows)
            if i == last:
                return
            if stages & ATTEND:
                attend_all(first_layer + i * _LAYER_SIZE, layer, step_at, step, (kv, kind))
            if stages & LEAVE:
                for start in range(0, step.rows, MOST):
                    _leave_attention(layer, step, start, min(MOST, step.rows - start))

    return run


_run, _run_amx = _layers_by(_attend), _layers_by(_attend_amx)


def layers(first_layer, first, last, step_at, stages):
    """Layers first:last of those that begin at an address, or some stages of each."""
    _run(first_layer, first, last, step_at, stages, np.float32(0))


def layers_bf16(first_layer, first, last, step_at, stages):
    """The same where keys and values are bfloat16."""
    _run(first_layer, first, last, step_at, stages, np.uint16(0))


def layers_bf16_amx(first_layer, first, last, step_at, stages):
    """The same where AMX reads them."""
    _run_amx(first_layer, first, last, step_at, stages, np.uint16(0))


def extend_f32(item_at, layer_at, step_at, kv_at, unused):
    """By `extend_attention`: an ITEM of a layer's step, whose keys and values are at an address."""
    _extend_item(item_at, layer_at, step_at, kv_at, np.float32(0))


def extend_bf16(item_at, layer_at, step_at, kv_at, unused):
    """The same where keys and values are bfloat16."""
    _extend_item(item_at, layer_at, step_at, kv_at, np.uint16(0))


@callee
def _extend_item(item_at, layer_at, step_at, kv_at, kind):
    item, layer = carray(_item_at(item_at), 1)[0], carray(_layer_at(layer_at), 1)[0]
    step = carray(_step_at(step_at), 1)[0]
    num = item.num_sequences
    _extend(
        *_attention_arrays(layer, step, kv_at, kind),
        carray(ints(item.table), (item.num_rows, item.width)),
        carray(ints(item.rows), num),
        carray(ints(item.firsts), num),
        carray(ints(item.starts), num),
        carray(ints(item.ends), num),
        carray(longs(item.bounds), num + 1),
        item.window,
        layer.scale,
        np.float32(0),
        extend_attention.MAX_TILES,
        carray(longs(item.tokens), item.num_tokens),
        item.is_merged != 0,
        0,
        _ENDLESS,
        0,
        1,
    )
