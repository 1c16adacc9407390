"""Pairs of numbers turned by angles: a compiled loop. Only for float32 on a CPU; needs numba."""

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


def turn(x, angles):
    """Turn the pairs (0, 1), (2, 3), ... of x [tokens, heads, dim], which lie side by side, in
    place by the complex numbers angles [tokens, dim]: real part, imaginary part, ..."""
    tokens, heads, dim = x.shape
    size, turns = x.itemsize, angles.reshape(-1)
    whole = dim // NARROW * NARROW
    for token in range(tokens):
        for head in range(heads):
            at = token * (x.strides[0] // size) + head * (x.strides[1] // size)
            for i in range(0, whole, NARROW):
                _turn(x, at + i, turns, token * dim + i, narrow())
            for i in range(whole, dim, 2):
                _turn(x, at + i, turns, token * dim + i, _pair())


@_compiled
def _turn(x, at, turns, place, like):
    store(x, at, _turned(load(x, at, like), load(turns, place, like)))


@intrinsic
def _pair(typing):
    """A vector of two zeros."""

    def emit(context, builder, signature, args):
        return ir.Constant(context.get_value_type(signature.return_type), [0.0, 0.0])

    return Vector(2)(), emit


@intrinsic
def _turned(typing, x, turns):
    """Two vectors as complex numbers, multiplied; no product is rounded together with a sum."""

    def emit(context, builder, signature, args):
        x, turns = args
        lanes = range(x.type.count)

        def moved(vector, places, other=None):
            order = ir.Constant(ir.VectorType(_INT, len(lanes)), places)
            none = ir.Constant(vector.type, ir.Undefined)
            return builder.shuffle_vector(vector, other or none, order)

        straight = builder.fmul(x, moved(turns, [lane & ~1 for lane in lanes]))
        swapped = moved(x, [lane ^ 1 for lane in lanes])
        across = builder.fmul(swapped, moved(turns, [lane | 1 for lane in lanes]))
        less, more = builder.fsub(straight, across), builder.fadd(straight, across)
        return moved(less, [lane + lane % 2 * len(lanes) for lane in lanes], more)

    return x(x, turns), emit
