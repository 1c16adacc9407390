"""Rows of numbers scaled to root mean square 1, then by a weight: a compiled loop. Only for float32
on a CPU; needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit

from .vectors import (
    NARROW,
    WIDE,
    fma,
    load,
    narrow,
    single,
    spread,
    store,
    summed,
    times,
    wide,
)

SIGNATURE = "void(float32[:, :, :], float32[:, ::1], float32, float32[:, :, :])"
_compiled = njit(error_model="numpy", nogil=True)


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


@_compiled
def scale_of(x, at, dim, eps):
    """The factor that scales dim numbers of x, from index `at` on, to root mean square 1."""
    return np.float32(1) / np.sqrt(_squares(x, at, dim) / np.float32(dim) + eps)


@_compiled
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


@_compiled
def _scale(x, at, dim, scale, weights, first, out, to):
    whole = dim // WIDE * WIDE
    for i in range(0, whole, WIDE):
        _scale_some(x, at + i, scale, weights, first + i, out, to + i, wide())
    for i in range(whole, dim):
        _scale_some(x, at + i, scale, weights, first + i, out, to + i, single())


@_compiled
def _scale_some(x, at, scale, weights, first, out, to, like):
    scaled = times(load(x, at, like), spread(scale, like))
    store(out, to, times(scaled, load(weights, first, like)))
