"""Vectors of float32 as values in code that numba compiles, so that loops decide what stays in
registers.

LLVM's own vectoriser checks at every loop whether arrays overlap, and keeps sums of several rows in
memory: a third of the speed. Numbers of a vector are called lanes. Loads and stores check nothing.
Needs numba. What it keeps of loops compiled with these goes by the file of the loop, not by this
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from .features import has

# A wide vector: eight of them are sums, and two more fit beside these.
WIDE = 32 if has("avx512f") else 8
NARROW = 8
# Float32 numbers that all vector registers hold: 32 of 16 (AVX-512), 16 of 8 (AVX), 32 of 4 (Arm),
# or 16 of 4 (SSE).
REGISTERS = 512 if WIDE == 32 else 128 if has("avx") or has("neon") else 64
# How arrays have numbers, by the names of these: numba's names of what `widened` takes.
STORED = {"float32": "float32", "bfloat16": "uint16", "float16": "int16"}

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_BYTES = ir.IntType(8).as_pointer()
_FUSED = ("contract",)  # a product and a sum may be rounded once
BELOW_HALF, _NAN = 0x7FFF, 0x7FC00000  # just below half of bfloat16's last bit; no number
_ROUNDER = 1.5 * 2**23  # added to a small number, leaves its nearest integer in the last bits
_LEAST = -126.0  # below, powers of two are not normal numbers
_POWERS = np.polynomial.Chebyshev.interpolate(np.exp2, 6, [-0.5, 0.5])
_EXP2 = _POWERS.convert(kind=np.polynomial.Polynomial).coef.tolist()  # within 1e-8
_TANH = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835)  # of odd powers, near zero
_NEAR = 0.3


class Vector(types.Type):
    """A vector of `width` float32 numbers."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(f"Vector({width})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector is one of LLVM's."""

    def __init__(self, manager: Any, vector: Any) -> None:
        super().__init__(manager, vector, ir.VectorType(_FLOAT, vector.width))


def zeros(width: int) -> Any:
    """A function for compiled code that gives zeros of so many lanes."""

    @intrinsic
    def filled(typing):
        def emit(context, builder, signature, args):
            return all_lanes(ir.VectorType(_FLOAT, width), 0.0)

        return Vector(width)(), emit

    return filled


wide, narrow, single = zeros(WIDE), zeros(NARROW), zeros(1)  # vectors of zeros


@intrinsic
def load(typing, array, at, like):
    """As many numbers of a flat array as `like` has, from index `at`: of float32, or of integers
    that `widened` takes."""

    def emit(context, builder, signature, args):
        kind = stored_kind(signature.args[0].dtype, args[2].type.count)
        address = address_in(context, builder, signature.args[0], args[0], args[1], kind)
        return widened(builder, builder.load(address, align=2), signature.args[0].dtype)

    return like(array, types.intp, like), emit


@intrinsic
def store(typing, array, at, x):
    """Put a vector into a flat array from index `at`: of float32, or of integers that `widened`
    takes, as the nearest numbers (the even ones of two)."""

    def emit(context, builder, signature, args):
        dtype, x = signature.args[0].dtype, args[2]
        kind = stored_kind(dtype, x.type.count)
        if dtype == types.int16:
            half = ir.VectorType(ir.HalfType(), x.type.count)
            x = builder.bitcast(builder.fptrunc(x, half), kind)
        elif dtype == types.uint16:
            rounded = rounded_bits(builder, x)
            x = builder.trunc(builder.lshr(rounded, all_lanes(rounded.type, 16)), kind)
        address = address_in(context, builder, signature.args[0], args[0], args[1], kind)
        builder.store(x, address, align=2)
        return context.get_dummy_value()

    return types.void(array, types.intp, x), emit


@intrinsic
def spread(typing, number, like):
    """A vector like `like` with this number in all lanes."""

    def emit(context, builder, signature, args):
        return spread_lanes(builder, args[0], args[1].type)

    return like(types.float32, like), emit


@intrinsic
def fma_at(typing, total, array, at, x):
    """total + array[at] * x, of a vector, a flat array's number and a vector. Numbers of the array
    as `load` takes them."""

    def emit(context, builder, signature, args):
        total, array, at, x = args
        data = context.make_array(signature.args[1])(context, builder, array).data
        number = widened(builder, builder.load(builder.gep(data, [at])), signature.args[1].dtype)
        return fused(builder, total, spread_lanes(builder, number, x.type), x)

    return total(total, array, types.intp, x), emit


@intrinsic
def fma(typing, total, x, y):
    """total + x * y, of three vectors."""

    def emit(context, builder, signature, args):
        return fused(builder, *args)

    return total(total, x, y), emit


def _fetch_to(locality: int) -> Any:
    @intrinsic
    def fetch(typing, array, at):
        def emit(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            prefetch(builder, builder.gep(data, [args[1]]), locality)
            return context.get_dummy_value()

        return types.void(array, types.intp), emit

    return fetch


fetch, fetch_far = _fetch_to(3), _fetch_to(2)  # a place of a flat array, or behind it, soon read:
# into the nearest cache, or into the second


@intrinsic
def mask_range(typing, x, lows, highs, at):
    """x in lanes in which low <= at < high, -inf in the others."""

    def emit(context, builder, signature, args):
        x, lows, highs, at = args
        at = spread_lanes(builder, at, x.type)
        is_above = builder.fcmp_ordered("<=", lows, at)
        is_visible = builder.and_(is_above, builder.fcmp_ordered("<", at, highs))
        return builder.select(is_visible, x, all_lanes(x.type, -math.inf))

    return x(x, x, x, types.float32), emit


def _of_one(function: Callable[..., ir.Value], is_number: bool = False) -> Any:
    @intrinsic
    def operation(typing, x):
        def emit(context, builder, signature, args):
            return function(builder, *args)

        return (types.float32 if is_number else x)(x), emit

    return operation


def _of_two(function: Callable[..., ir.Value]) -> Any:
    @intrinsic
    def operation(typing, x, y):
        def emit(context, builder, signature, args):
            return function(builder, *args)

        return x(x, y), emit

    return operation


def _larger(builder, x, y):
    return builder.select(builder.fcmp_ordered(">", y, x), y, x)


def _smaller(builder, x, y):
    return builder.select(builder.fcmp_ordered("<", y, x), y, x)


def power_of_two(builder, x):
    """2**x as a polynomial of its fraction, times its integer shifted into the exponent's bits."""
    kind, ints = x.type, ir.VectorType(_INT, x.type.count)
    shifted = builder.fadd(x, all_lanes(kind, _ROUNDER))
    fraction = builder.fsub(x, builder.fsub(shifted, all_lanes(kind, _ROUNDER)))
    bits = builder.shl(builder.bitcast(shifted, ints), all_lanes(ints, 23))
    power = builder.bitcast(builder.add(bits, all_lanes(ints, 127 << 23)), kind)
    result = builder.fmul(polynomial(builder, fraction, _EXP2), power)
    is_least = builder.fcmp_ordered("<", x, all_lanes(kind, _LEAST))
    return builder.select(is_least, all_lanes(kind, 0.0), result)


def _tanh(builder, x):
    """By exp2 of what is far from zero; near it that would cancel."""
    kind = x.type
    size = builder.select(builder.fcmp_ordered("<", x, all_lanes(kind, 0.0)), builder.fneg(x), x)
    power = power_of_two(builder, builder.fmul(size, all_lanes(kind, -2 / math.log(2))))
    one = all_lanes(kind, 1.0)
    far = builder.fdiv(builder.fsub(one, power), builder.fadd(one, power))
    far = builder.select(builder.fcmp_ordered("<", x, all_lanes(kind, 0.0)), builder.fneg(far), far)
    near = builder.fmul(x, polynomial(builder, builder.fmul(x, x), _TANH))
    return builder.select(builder.fcmp_ordered("<", size, all_lanes(kind, _NEAR)), near, far)


def folded(builder, x, function):
    """The halves of a vector joined until one number is left."""
    while x.type.count > 1:
        half = x.type.count // 2
        x = function(builder, *(shuffled(builder, x, x, range(at, at + half)) for at in (0, half)))
    return builder.extract_element(x, ir.Constant(_INT, 0))


summed = _of_one(lambda builder, x: folded(builder, x, lambda b, y, z: b.fadd(y, z)), True)
highest = _of_one(lambda builder, x: folded(builder, x, _larger), True)  # as `larger`
lowest = _of_one(lambda builder, x: folded(builder, x, _smaller), True)


plus = _of_two(lambda builder, x, y: builder.fadd(x, y))
minus = _of_two(lambda builder, x, y: builder.fsub(x, y))
times = _of_two(lambda builder, x, y: builder.fmul(x, y))
over = _of_two(lambda builder, x, y: builder.fdiv(x, y))
larger = _of_two(_larger)  # y where it is above x, else x: a NaN in y is passed over
exp2 = _of_one(power_of_two)  # 2**x for x below 127, within 1e-7 of it; 0 for x < -126
tanh = _of_one(_tanh)  # the hyperbolic tangent, within 2e-7 of it


def prefetch(builder, pointer, locality):
    """Prefetch a line that is going to be read: into the first cache (3) or the second (2)."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTES, _INT, _INT, _INT])
    function = builder.module.declare_intrinsic("llvm.prefetch", [_BYTES], kind)
    settings = [ir.Constant(_INT, setting) for setting in (0, locality, 1)]  # to be read, of data
    builder.call(function, [builder.bitcast(pointer, _BYTES), *settings])


def all_lanes(kind, value):
    """The same constant in all lanes."""
    return ir.Constant(kind, [value] * kind.count)


def stored_kind(dtype, count):
    """LLVM's type of so many numbers of an array."""
    return ir.VectorType(_FLOAT if dtype == types.float32 else ir.IntType(16), count)


def widened(builder, x, dtype):
    """Numbers, or one, of an array as float32. dtype: of the array: float32, or uint16 for the bits
    of bfloat16 numbers, or int16 for those of float16 ones."""
    if dtype == types.float32:
        return x
    count = getattr(x.type, "count", 0)
    half, integer, single = (
        ir.VectorType(kind, count) if count else kind for kind in (ir.HalfType(), _INT, _FLOAT)
    )
    if dtype == types.int16:
        return builder.fpext(builder.bitcast(x, half), single)
    shift = ir.Constant(integer, [16] * count if count else 16)
    return builder.bitcast(builder.shl(builder.zext(x, integer), shift), single)


def spread_lanes(builder, number, kind):
    """A vector with this number in all lanes."""
    none = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(none, number, ir.Constant(_INT, 0))
    return shuffled(builder, first, none, [0] * kind.count)


def shuffled(builder, x, y, lanes):
    """These lanes of two vectors that follow one another."""
    order = ir.Constant(ir.VectorType(_INT, len(lanes)), list(lanes))
    return builder.shuffle_vector(x, y, order)


def rounded_bits(builder, x):
    """The bits of numbers whose upper halves are those of the nearest bfloat16 numbers (the even
    ones of two); the lower halves are anything."""
    ints = ir.VectorType(_INT, x.type.count)
    bits = builder.bitcast(x, ints)
    is_odd = builder.and_(builder.lshr(bits, all_lanes(ints, 16)), all_lanes(ints, 1))
    rounded = builder.add(builder.add(bits, all_lanes(ints, BELOW_HALF)), is_odd)
    return builder.select(builder.fcmp_unordered("uno", x, x), all_lanes(ints, _NAN), rounded)


def fused(builder, total, x, y):
    """total + x * y."""
    return builder.fadd(total, builder.fmul(x, y, flags=_FUSED), flags=_FUSED)


def polynomial(builder, x, coefficients):
    """Coefficients from the constant one on."""
    result = all_lanes(x.type, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = fused(builder, all_lanes(x.type, coefficient), result, x)
    return result


def address_in(context, builder, array_type, array, at, kind):
    """Where a number of a flat array is, as the address of an LLVM type."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())
