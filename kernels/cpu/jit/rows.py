"""Norms, rotary positions and gates of rows of numbers: compiled loops. Only for float32 on a CPU;
needs numba."""

from __future__ import annotations

import numpy as np
from numba.extending import intrinsic

from .callees import callee
from .vectors import (
    NARROW,
    WIDE,
    exp2,
    fma,
    larger,
    load,
    minus,
    narrow,
    over,
    plus,
    shuffled,
    single,
    spread,
    store,
    summed,
    times,
    wide,
    zeros,
)

NORMALIZE = "void(float32[:, :, :], float32[:, ::1], float32, float32[:, :, :])"
ROTATE = "void(float32[:, :, :], float32[:, ::1])"
SILU_MUL = "void(float32[:, ::1], float32[:, ::1])"
_LOG2_E = np.float32(1 / np.log(2))
_LEAST_POWER = np.float32(-126.0)  # whose power of two, and its inverse, are normal numbers
_pair = zeros(2)


def normalize(x, weight, eps, out):
    """out [tokens, heads, dim], which may be x: each head of x [tokens, heads, dim] by its own
    weight [heads, dim]. Numbers of a head lie side by side in all of them.

    Every sum goes in the same order, however many rows there are.
    """
    tokens, heads, dim = x.shape
    size, weights = x.itemsize, weight.reshape(-1)
    for token in range(tokens):
        for head in range(heads):
            at = token * (x.strides[0] // size) + head * (x.strides[1] // size)
            to = token * (out.strides[0] // size) + head * (out.strides[1] // size)
            _scale(x, at, dim, scale_of(x, at, dim, eps), weights, head * dim, out, to)


@callee
def scale_of(x, at, dim, eps):
    """The factor that scales dim numbers of x, from index `at` on, to root mean square 1."""
    return np.float32(1) / np.sqrt(_squares(x, at, dim) / np.float32(dim) + eps)


@callee
def _squares(x, at, dim):
    """The sum of the squares of dim numbers of x, from index `at` on."""
    whole = dim // WIDE * WIDE
    most = whole + (dim - whole) // NARROW * NARROW
    total = wide()
    for i in range(0, whole, WIDE):
        number = load(x, at + i, total)
        total = fma(total, number, number)
    some = narrow()
    for i in range(whole, most, NARROW):
        number = load(x, at + i, some)
        some = fma(some, number, number)
    rest = single()
    for i in range(most, dim):
        number = load(x, at + i, rest)
        rest = fma(rest, number, number)
    return summed(total) + summed(some) + summed(rest)


@callee
def _scale(x, at, dim, scale, weights, first, out, to):
    whole = dim // WIDE * WIDE
    for i in range(0, whole, WIDE):
        _scale_some(x, at + i, scale, weights, first + i, out, to + i, wide())
    for i in range(whole, dim):
        _scale_some(x, at + i, scale, weights, first + i, out, to + i, single())


@callee
def _scale_some(x, at, scale, weights, first, out, to, like):
    scaled = times(load(x, at, like), spread(scale, like))
    store(out, to, times(scaled, load(weights, first, like)))


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


@callee
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


@callee
def _gate(numbers, at, half, out, to, like):
    store(out, to, gated(load(numbers, at, like), load(numbers, at + half, like), like))


@callee
def gated(gate, up, like):
    """silu(gate) * up, of two vectors like `like`, which is zeros."""
    power = times(gate, spread(_LOG2_E, like))
    power = exp2(minus(like, larger(spread(_LEAST_POWER, like), power)))
    bound = plus(spread(np.float32(1), like), power)
    return over(times(gate, up), bound)
