"""How loops over bfloat16 keys and values round queries and softmax weights. All of them round
alike, so that a step gives the same numbers by any of them. Without AMX, and for float32 keys,
nothing is rounded. Needs numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .features import AMX_BF16, has
from .pairs import can_multiply
from .vectors import BELOW_HALF, all_lanes, polynomial, power_of_two, rounded_bits, shuffled

_INT = ir.IntType(32)
_ROUNDS = has(*AMX_BF16) or can_multiply()
_UPPER = 0xFFFF0000  # the bits of a float32 number that are a bfloat16 number
_COARSE = np.polynomial.Chebyshev.interpolate(
    lambda x: (np.exp2(x) - 1) / np.where(x, x, 1) + (x == 0) * math.log(2), 3, [0, 1]
)
_COARSE_EXP2 = (1.0, *_COARSE.convert(kind=np.polynomial.Polynomial).coef.tolist())  # within 8e-6
_SIXTEEN, _ALL_LANES = 16, 0xFFFF  # lanes of a register, and their mask
_DOWN, _CURRENT = 1, 4  # ways to round


def _by_kind(exact: Any, rounded: Any) -> Any:
    """A function of a vector and a number like a key: the first one, or the second where keys are
    bfloat16 (uint16, their bits) and such numbers are multiplied."""

    @intrinsic
    def operation(typing, x, kind):
        def emit(context, builder, signature, args):
            is_rounded = signature.args[1] == types.uint16 and _ROUNDS
            return (rounded if is_rounded else exact)(builder, args[0])

        return x(x, kind), emit

    return operation


def _same(builder, x):
    return x


def _upper(builder, bits):
    """The bfloat16 numbers in the upper halves of these bits, as float32."""
    kind = ir.VectorType(ir.FloatType(), bits.type.count)
    return builder.bitcast(builder.and_(bits, all_lanes(bits.type, _UPPER)), kind)


def _ceil(builder, x):
    kind, name = ir.FunctionType(x.type, [x.type]), f"llvm.ceil.v{x.type.count}f32"
    return builder.call(builder.module.declare_intrinsic(name, [], kind), [x])


def rounded_weight_bits(builder, x):
    """As `rounded_bits`, of numbers from 0 on; halves go up."""
    ints = ir.VectorType(_INT, x.type.count)
    return builder.add(builder.bitcast(x, ints), all_lanes(ints, BELOW_HALF + 1))


def _coarse_exp2(builder, x):
    """2**x of 16 lanes, by instructions of AVX-512 that take a number's fraction and exponent."""
    mask, way = ir.Constant(ir.IntType(16), _ALL_LANES), ir.Constant(_INT, _CURRENT)
    reduce = _avx512(builder, "reduce", x.type, [x.type, _INT, x.type, mask.type, _INT])
    fraction = builder.call(reduce, [x, ir.Constant(_INT, _DOWN), x, mask, way])
    result = polynomial(builder, fraction, _COARSE_EXP2)
    scale = _avx512(builder, "scalef", x.type, [x.type] * 3 + [mask.type, _INT])
    return builder.call(scale, [result, x, x, mask, way])


def _avx512(builder, name, kind, kinds):
    name = f"llvm.x86.avx512.mask.{name}.ps.512"
    return builder.module.declare_intrinsic(name, [], ir.FunctionType(kind, kinds))


def _by_registers(builder, x, function):
    """A function of 16 lanes, of any number of lanes."""
    count = x.type.count
    if count <= _SIXTEEN:
        filled = shuffled(builder, x, x, [min(i, count - 1) for i in range(_SIXTEEN)])
        result = function(builder, filled)
        return shuffled(builder, result, result, range(count))
    low, high = (
        function(builder, shuffled(builder, x, x, range(at, at + _SIXTEEN))) for at in (0, _SIXTEEN)
    )
    return shuffled(builder, low, high, range(count))


# x as it is multiplied by keys: rounded to the nearest bfloat16 number.
rounded_for = _by_kind(_same, lambda builder, x: _upper(builder, rounded_bits(builder, x)))
# 2**x as the softmax's weight of a key: that of `exp2`, or within 8e-6, and 1 for 0.
weight_for = _by_kind(power_of_two, lambda builder, x: _by_registers(builder, x, _coarse_exp2))
# Such a weight as it is multiplied by values: rounded to bfloat16, halves up.
rounded_weight = _by_kind(
    _same, lambda builder, x: _upper(builder, rounded_weight_bits(builder, x))
)
# The row maximum that weights are relative to: where weights are rounded the next integer, which
# scales them by a power of two and so keeps their rounding.
row_max_for = _by_kind(_same, _ceil)
