"""The feed-forward of a layer in one loop: norm, gate and up, silu(gate) * up, down: compiled
loops on AMX.

Each step passes its result on as bfloat16 terms (`bf16x3`), from cache to cache: float32 rows
between two linear layers would be written to memory and read twice. Gives the same bits as the
steps one by one. Without it a prompt of 128 to 512 tokens takes 10 to 15 % longer (56M parameters
in bfloat16, one thread). Only for float32 rows on a CPU with AMX; needs numba.
"""

from __future__ import annotations

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from ..jit.addresses import bare, floats, hold, record, records
from ..jit.addresses import words as shorts
from ..jit.amx import BYTES, DEPTH, ROWS, begin, end
from ..jit.attention_lanes import few
from ..jit.callees import callee
from ..jit.rows import gated, scale_of
from ..jit.vectors import load, spread, times
from .bf16x3 import (
    LANES,
    TILE,
    add_up,
    aligned,
    num_sums,
    rows_at_once,
    store_terms,
    sums_of,
    unpack,
)
from .entries import MATRIX

# Addresses of a norm's weight [depth], the MATRIX after it, and the last one, after the gates.
# entry: the function that computes them.
FUSED_MLP = record("entry norm matrix last", "eps")
LEAST = 65  # rows from which this is faster than one by one
_mlp_at, _matrix_at = records(FUSED_MLP), records(MATRIX)


def fits(depth: int, width: int, last_depth: int) -> bool:
    """Whether `feed_forward` can do matrices of these sizes: no step of a tile holds gates of two
    panels, or is padded."""
    return depth % DEPTH == 0 and last_depth % LANES == 0 and width == 2 * last_depth


def feed_forward(mlp_at, x_at, rows, out_at, is_added):
    """norm -> gate and up -> silu(gate) * up -> down: from x [rows, depth] into out [rows, width],
    which may be x; or what it was before is added. The matrices `fits`, and have no bias."""
    it = carray(_mlp_at(mlp_at), 1)[0]
    up, down = carray(_matrix_at(it.matrix), 1)[0], carray(_matrix_at(it.last), 1)[0]
    x, norm_weight = carray(floats(x_at), rows * up.depth), carray(floats(it.norm), up.depth)
    out = carray(floats(out_at), rows * down.width)
    of_up = up.weight_terms, carray(shorts(up.weights), up.num_numbers)
    of_down = down.weight_terms, carray(shorts(down.weights), down.num_numbers)
    steps, last_steps, row_terms = up.depth // DEPTH, down.depth // DEPTH, up.row_terms
    most, step_size = rows_at_once(steps, row_terms), row_terms * TILE
    tiles = (min(rows, most) + ROWS - 1) // ROWS
    words = np.empty(tiles * steps * step_size + BYTES, np.uint16)  # as in `bf16x3.multiply`
    gates = np.empty(tiles * last_steps * step_size + BYTES, np.uint16)
    sums = np.empty(2 * tiles * ROWS * LANES + BYTES, np.float32)  # of a gate's panel, and an up's
    packed, to = aligned(words.ctypes.data) // 2, aligned(gates.ctypes.data) // 2
    total = aligned(sums.ctypes.data) // 4
    of_words, of_gates, of_sums = bare(words), bare(gates), bare(sums)
    begin(ROWS)
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack_normed(x[start * up.depth :], used, norm_weight, it.eps, row_terms, of_words, packed)
        of_rows = of_words, packed, used, steps, row_terms
        _gate_all(of_rows, of_up, down.depth // LANES, of_sums, total, of_gates, to)
        of_rows = of_gates, to, used, last_steps, row_terms
        for panel in range(down.num_panels):
            of_panel = panel, min(panel + 1, down.num_panels - 1)
            add_up(of_down[0], of_rows, of_down[1], of_panel, of_sums, total)
            of_out = out, start * down.width + panel * LANES, down.width, is_added != 0
            unpack(of_sums, total, used, min(LANES, down.width - panel * LANES), of_out)
    end()
    hold((words, gates, sums))


@callee
def _pack_normed(x, used, norm_weight, eps, row_terms, words, packed):
    """Terms of rows of the flat x, normed, as `bf16x3` packs them."""
    depth = len(norm_weight)
    steps = depth // DEPTH
    for row in range((used + ROWS - 1) // ROWS * ROWS):
        at = row * depth
        to = packed + row // ROWS * steps * row_terms * TILE + row % ROWS * DEPTH
        scale = spread(scale_of(x, at, depth, eps) if row < used else np.float32(0), few())
        for i in range(0, depth, DEPTH):
            if row < used:
                first = times(times(load(x, at + i, few()), scale), load(norm_weight, i, few()))
                second = times(load(x, at + i + ROWS, few()), scale)
                second = times(second, load(norm_weight, i + ROWS, few()))
                store_terms(first, second, row_terms, words, to)
            else:
                store_terms(few(), few(), row_terms, words, to)
            to += row_terms * TILE


@callee
def _gate_all(of_rows, of_up, num_panels, sums, total, gates, to):
    """Terms of silu(gate) * up, for packed rows and weights of so many panels of gates and as many
    of ups."""
    (_, _, used, _, row_terms), (num, weights) = of_rows, of_up
    stride = num_sums(used)
    for panel in range(num_panels):
        up = num_panels + panel
        add_up(num, of_rows, weights, (panel, up), sums, total)
        following = min(panel + 1, num_panels - 1)
        add_up(num, of_rows, weights, (up, following), sums, total + stride)
        _pack_gated(sums, total, stride, used, gates, to, (row_terms, 2 * panel, 2 * num_panels))


@callee
def _pack_gated(sums, start, stride, used, gates, to, of_steps):
    """Terms of silu(gate) * up, from sums of a panel of gates and, `stride` behind them, of ups:
    two steps of packed rows. of_steps: terms of a number, the first of the two steps, and the
    number of all."""
    (row_terms, first_step, steps), tiles = of_steps, (used + ROWS - 1) // ROWS
    step_size = row_terms * TILE
    to += first_step * step_size
    for tile in range(tiles):
        at, right = sums_of(start, tile, tiles)
        for step in range(2):
            target, source = to + (tile * steps + step) * step_size, at + step * right
            for _ in range(ROWS):
                first = _gated_some(sums, source, stride)
                second = _gated_some(sums, source + ROWS * ROWS, stride)
                store_terms(first, second, row_terms, gates, target)
                target += DEPTH
                source += ROWS


@callee
def _gated_some(sums, at, stride):
    return gated(load(sums, at, few()), load(sums, at + stride, few()), few())
