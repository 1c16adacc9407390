"""Rows of numbers gated by others: a compiled loop. Only for float32 on a CPU; needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .vectors import WIDE, exp2, larger, load, minus, over, plus, single, spread, store, times, wide

SIGNATURE = "void(float32[:, ::1], float32[:, ::1])"
_LOG2_E = np.float32(1 / np.log(2))
_LOWEST = np.float32(-126.0)  # whose power of two, and that of its negative, are normal numbers
_compiled = njit(error_model="numpy", nogil=True)


def silu_mul(rows, out):
    """out [rows, half]: silu(gate) * up of rows [rows, gate then up]."""
    half = out.shape[1]
    numbers, written, whole = rows.reshape(-1), out.reshape(-1), half // WIDE * WIDE
    for row in range(len(rows)):
        at, to = row * 2 * half, row * half
        for i in range(0, whole, WIDE):
            _gate(numbers, at + i, half, written, to + i, wide())
        for i in range(whole, half):
            _gate(numbers, at + i, half, written, to + i, single())


@_compiled
def _gate(numbers, at, half, out, to, like):
    store(out, to, gated(load(numbers, at, like), load(numbers, at + half, like), like))


@_compiled
def gated(gate, up, like):
    """silu(gate) * up, of two vectors like `like`, which is zeros."""
    power = times(gate, spread(_LOG2_E, like))
    power = exp2(minus(like, larger(spread(_LOWEST, like), power)))
    bound = plus(spread(np.float32(1), like), power)
    return over(times(gate, up), bound)
