"""Rotary position encoding: a compiled loop. Only for float32 on a CPU; needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

from .vectors import NARROW, Vector, load, narrow, store

SIGNATURE = "void(float32[:, :, :], float32[:, ::1])"
_INT = ir.IntType(32)
_compiled = njit(error_model="numpy", nogil=True)


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
def _pair(typing):
    """A vector of two zeros."""

    def emit(context, builder, signature, args):
        return ir.Constant(context.get_value_type(signature.return_type), [0.0, 0.0])

    return Vector(2)(), emit


@intrinsic
def _rotated(typing, x, factors):
    """Two vectors as complex numbers, multiplied. No product is fused with a sum."""

    def emit(context, builder, signature, args):
        x, factors = args
        lanes = range(x.type.count)

        def moved(vector, indices, other=None):
            order = ir.Constant(ir.VectorType(_INT, len(lanes)), indices)
            none = ir.Constant(vector.type, ir.Undefined)
            return builder.shuffle_vector(vector, other or none, order)

        unswapped = builder.fmul(x, moved(factors, [lane & ~1 for lane in lanes]))
        swapped = moved(x, [lane ^ 1 for lane in lanes])
        across = builder.fmul(swapped, moved(factors, [lane | 1 for lane in lanes]))
        less, more = builder.fsub(unswapped, across), builder.fadd(unswapped, across)
        return moved(less, [lane + lane % 2 * len(lanes) for lane in lanes], more)

    return x(x, factors), emit
