"""A norm, products by tiles and the gates between them in one piece: compiled loops.

What one of them gives goes into the next one as thirds (`thirds`), from caches into caches: rows of
float32 that stand between two products would be written to memory and read twice. Gives what the
same parts give one by one, to the last bit. Only for float32 on a CPU that multiplies tiles; needs
numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]

from ..jit.addresses import bare, floats, hold, record, records
from ..jit.addresses import words as shorts
from ..jit.amx import BYTES, DEPTH, ROWS, begin, end, round_both, split_both
from ..jit.attention_lanes import few
from ..jit.gates import gated
from ..jit.norms import scale_of
from ..jit.vectors import load, spread, times
from .entries import MATRIX
from .thirds import LANES, TILE, add_up, aligned, num_sums, rows_at_once, sums_of, unpack

# A norm's weight [depth] and the MATRIX behind it; last: the one behind gates. All are addresses.
# entry: what computes them.
CHAIN = record("entry norm matrix last", "eps")
LEAST = 65  # rows from which this is quicker than one by one
_compiled = njit(error_model="numpy", nogil=True)
_chain_at, _matrix_at = records(CHAIN), records(MATRIX)


def fits(depth: int, width: int, last_depth: int) -> bool:
    """Whether `feed_forward` can do matrices of these sizes: no step of a tile holds gates of two
    panels, or is filled up."""
    return depth % DEPTH == 0 and last_depth % LANES == 0 and width == 2 * last_depth


def feed_forward(chain_at, x_at, rows, out_at, is_added):
    """norm -> gate and up -> silu(gate) * up -> down: from x [rows, depth] into out [rows, width],
    which may be x; or what it was before is added. The matrices `fits`, and have no bias."""
    it = carray(_chain_at(chain_at), 1)[0]
    up, down = carray(_matrix_at(it.matrix), 1)[0], carray(_matrix_at(it.last), 1)[0]
    x, weights = carray(floats(x_at), rows * up.depth), carray(floats(it.norm), up.depth)
    out = carray(floats(out_at), rows * down.width)
    of_up = up.thirds, carray(shorts(up.panels), up.num_numbers)
    of_down = down.thirds, carray(shorts(down.panels), down.num_numbers)
    steps, last_steps, row_parts = up.depth // DEPTH, down.depth // DEPTH, up.row_parts
    most, part = rows_at_once(steps, row_parts), row_parts * TILE
    tiles = (min(rows, most) + ROWS - 1) // ROWS
    words = np.empty(tiles * steps * part + BYTES, np.uint16)  # as in `thirds.multiply`
    gates = np.empty(tiles * last_steps * part + BYTES, np.uint16)
    sums = np.empty(2 * tiles * ROWS * LANES + BYTES, np.float32)  # of a gate's panel, and an up's
    packed, to = aligned(words.ctypes.data) // 2, aligned(gates.ctypes.data) // 2
    total = aligned(sums.ctypes.data) // 4
    of_words, of_gates, of_sums = bare(words), bare(gates), bare(sums)
    begin(ROWS)
    for start in range(0, rows, most):
        used = min(most, rows - start)
        _pack_normed(x[start * up.depth :], used, weights, it.eps, row_parts, of_words, packed)
        of_rows = of_words, packed, used, steps, row_parts
        _gate_all(of_rows, of_up, down.depth // LANES, of_sums, total, of_gates, to)
        of_rows = of_gates, to, used, last_steps, row_parts
        for panel in range(down.num_panels):
            of_panel = panel, min(panel + 1, down.num_panels - 1)
            add_up(of_down[0], of_rows, of_down[1], of_panel, of_sums, total)
            of_out = out, start * down.width + panel * LANES, down.width, is_added != 0
            unpack(of_sums, total, used, min(LANES, down.width - panel * LANES), of_out)
    end()
    hold((words, gates, sums))


@_compiled
def _pack_normed(x, used, weights, eps, row_parts, words, packed):
    """Thirds of rows of the flat x, normed, as `thirds` packs them."""
    depth = len(weights)
    steps = depth // DEPTH
    for row in range((used + ROWS - 1) // ROWS * ROWS):
        at = row * depth
        to = packed + row // ROWS * steps * row_parts * TILE + row % ROWS * DEPTH
        scale = spread(scale_of(x, at, depth, eps) if row < used else np.float32(0), few())
        for i in range(0, depth, DEPTH):
            if row < used:
                first = times(times(load(x, at + i, few()), scale), load(weights, i, few()))
                second = times(load(x, at + i + ROWS, few()), scale)
                second = times(second, load(weights, i + ROWS, few()))
                _put(first, second, row_parts, words, to)
            else:
                _put(few(), few(), row_parts, words, to)
            to += row_parts * TILE


@_compiled
def _put(first, second, row_parts, words, to):
    """Two vectors as so many thirds."""
    if row_parts == 1:
        round_both(first, second, words, to)
    else:
        split_both(first, second, words, to, TILE)


@_compiled
def _gate_all(of_rows, of_up, num_panels, sums, total, gates, to):
    """Thirds of silu(gate) * up for packed rows and a matrix of so many panels of gates, and as
    many of ups."""
    (_, _, used, _, row_parts), (num, panels) = of_rows, of_up
    apart = num_sums(used)
    for panel in range(num_panels):
        up = num_panels + panel
        add_up(num, of_rows, panels, (panel, up), sums, total)
        following = min(panel + 1, num_panels - 1)
        add_up(num, of_rows, panels, (up, following), sums, total + apart)
        _pack_gated(sums, total, apart, used, gates, to, (row_parts, 2 * panel, 2 * num_panels))


@_compiled
def _pack_gated(sums, start, apart, used, gates, to, of_steps):
    """Thirds of silu(gate) * up for sums of a panel of gates, and of ups so far behind: two steps
    of those that are thirds' rows. of_steps: thirds of a number, the first of the two, and all."""
    (row_parts, first_step, steps), tiles = of_steps, (used + ROWS - 1) // ROWS
    part = row_parts * TILE
    to += first_step * part
    for tile in range(tiles):
        at, right = sums_of(start, tile, tiles)
        for step in range(2):
            place, source = to + (tile * steps + step) * part, at + step * right
            for _ in range(ROWS):
                first = _gated_some(sums, source, apart)
                second = _gated_some(sums, source + ROWS * ROWS, apart)
                _put(first, second, row_parts, gates, place)
                place += DEPTH
                source += ROWS


@_compiled
def _gated_some(sums, at, apart):
    return gated(load(sums, at, few()), load(sums, at + apart, few()), few())
