"""Products of pairs of bfloat16 numbers in code that numba compiles (AVX-512 BF16).

A lane of 32 bits holds two adjacent numbers, and an instruction adds the two products of each lane
to a float32 sum: twice as many products as with float32 numbers. Needs numba.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .features import has
from .vectors import address_in, all_lanes, shuffled, spread_lanes

_LANES = 16  # of one instruction
_INTS = ir.VectorType(ir.IntType(32), _LANES)
_NAME = "llvm.x86.avx512bf16.dpbf16ps.512"
_SHIFT, _UPPER = 16, 0xFFFF0000  # of the second number of a pair


@functools.cache
def can_multiply() -> bool:
    """Whether this process may use these instructions."""
    return has("avx512bf16", "avx512f")


def pair_product(builder, total, x, y):
    """total + the sums of both products of each lane; vectors of 16 lanes or a multiple."""
    kind = ir.VectorType(ir.FloatType(), _LANES)
    function = builder.module.declare_intrinsic(
        _NAME, [], ir.FunctionType(kind, [kind, _INTS, _INTS])
    )
    parts = []
    for start in range(0, total.type.count, _LANES):
        lanes = range(start, start + _LANES)
        before, *pairs = (shuffled(builder, it, it, lanes) for it in (total, x, y))
        parts.append(
            builder.call(function, [before, *(builder.bitcast(it, _INTS) for it in pairs)])
        )
    while len(parts) > 1:
        count = range(2 * parts[0].type.count)
        halves = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffled(builder, *both, count) for both in halves]
    return parts[0]


@intrinsic
def is_bf16(typing, array):
    """Whether an array has the bits of bfloat16 numbers; known when a loop is compiled."""

    def emit(context, builder, signature, args):
        return ir.Constant(ir.IntType(1), int(array.dtype == types.uint16))

    return types.boolean(array), emit


@intrinsic
def paired(typing, first, second):
    """Two vectors of bfloat16 numbers, stored as float32, as pairs of both in each lane."""

    def emit(context, builder, signature, args):
        ints = ir.VectorType(ir.IntType(32), args[0].type.count)
        lower, upper = (builder.bitcast(it, ints) for it in args)
        lower = builder.lshr(lower, all_lanes(ints, _SHIFT))
        both = builder.or_(lower, builder.and_(upper, all_lanes(ints, _UPPER)))
        return builder.bitcast(both, args[0].type)

    return first(first, second), emit


@intrinsic
def add_pair_at(typing, total, array, at, x):
    """total + the products of a flat array's two numbers from index `at` on, of bfloat16, and the
    pairs x."""

    def emit(context, builder, signature, args):
        total, array, at, x = args
        single = ir.VectorType(ir.FloatType(), 1)
        address = address_in(context, builder, signature.args[1], array, at, single)
        pair = builder.extract_element(builder.load(address, align=2), ir.IntType(32)(0))
        return pair_product(builder, total, x, spread_lanes(builder, pair, x.type))

    return total(total, array, types.intp, x), emit
