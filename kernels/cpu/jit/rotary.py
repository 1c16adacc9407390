"""Rotary position encoding: a compiled loop. Only for float32 on a CPU; needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

from numba import njit
from numba.extending import intrinsic

from .vectors import NARROW, load, narrow, shuffled, store, zeros

SIGNATURE = "void(float32[:, :, :], float32[:, ::1])"
_compiled, _pair = njit(error_model="numpy", nogil=True), zeros(2)


def apply_rotary(x, cos_sin):
    """Rotate the pairs (0, 1), (2, 3), ... of x [tokens, heads, dim] in place by cos_sin [tokens,
    dim]: cosine, sine, ... of each pair. The last axis of x is contiguous."""
    tokens, heads, dim = x.shape
    size, factors = x.itemsize, cos_sin.reshape(-1)
    whole = dim // NARROW * NARROW
    for token in range(tokens):
        for head in range(heads):
            at = token * (x.strides[0] // size) + head * (x.strides[1] // size)
            for i in range(0, whole, NARROW):
                _rotate(x, at + i, factors, token * dim + i, narrow())
            for i in range(whole, dim, 2):
                _rotate(x, at + i, factors, token * dim + i, _pair())


@_compiled
def _rotate(x, at, factors, factors_at, like):
    store(x, at, _rotated(load(x, at, like), load(factors, factors_at, like)))


@intrinsic
def _rotated(typing, x, factors):
    """Two vectors as complex numbers, multiplied. No product is fused with a sum."""

    def emit(context, builder, signature, args):
        x, factors = args
        lanes = range(x.type.count)

        cosines = shuffled(builder, factors, factors, [lane & ~1 for lane in lanes])
        sines = shuffled(builder, factors, factors, [lane | 1 for lane in lanes])
        swapped = shuffled(builder, x, x, [lane ^ 1 for lane in lanes])
        unswapped, across = builder.fmul(x, cosines), builder.fmul(swapped, sines)
        less, more = builder.fsub(unswapped, across), builder.fadd(unswapped, across)
        return shuffled(builder, less, more, [lane + lane % 2 * len(lanes) for lane in lanes])

    return x(x, factors), emit
