"""Vectors of float32 as values in code that numba compiles, so that loops decide what stays in
registers.

LLVM's own vectoriser checks at every loop whether arrays overlap, and keeps sums of several rows in
memory: a third of the speed. Numbers of a vector are called lanes. Loads and stores check nothing.
Needs numba. What it keeps of loops compiled with these goes by the file of the loop, not by this
one.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from .features import BFLOAT_TILES, has

# A wide vector: eight of them are sums, and two more fit beside these.
WIDE = 32 if has("avx512f") else 8
NARROW = 8
# Float32 numbers that all vector registers hold: 32 of 16 (AVX-512), 16 of 8 (AVX), 32 of 4 (Arm),
# or 16 of 4 (SSE).
REGISTERS = 512 if WIDE == 32 else 128 if has("avx") or has("neon") else 64

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_BYTES = ir.IntType(8).as_pointer()
_FUSED = ("contract",)  # a product and a sum may be rounded once
_HAS_TILES = has(*BFLOAT_TILES)
_UPPER = 0xFFFF0000  # the bits of a float32 number that are a bfloat16 number
_HALF, _NAN = 0x7FFF, 0x7FC00000  # just below half of bfloat16's last bit; no number
_ROUNDER = 1.5 * 2**23  # added to a small number, leaves its nearest integer in the last bits
_LEAST = -126.0  # below, powers of two are no normal numbers
_POWERS = np.polynomial.Chebyshev.interpolate(np.exp2, 6, [-0.5, 0.5])
_EXP2 = _POWERS.convert(kind=np.polynomial.Polynomial).coef.tolist()  # within 1e-8
_COARSE = np.polynomial.Chebyshev.interpolate(
    lambda x: (np.exp2(x) - 1) / np.where(x, x, 1) + (x == 0) * math.log(2), 3, [0, 1]
)
_COARSE_EXP2 = (1.0, *_COARSE.convert(kind=np.polynomial.Polynomial).coef.tolist())  # within 8e-6
_SIXTEEN, _ALL_LANES = 16, 0xFFFF  # lanes of a register, and their mask
_DOWN, _CURRENT = 1, 4  # ways to round
_TANH = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835)  # of odd powers, near zero
_NEAR = 0.3


class Vector(types.Type):
    """So many lanes."""

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
            return _filled(ir.VectorType(_FLOAT, width), 0.0)

        return Vector(width)(), emit

    return filled


wide, narrow, single = zeros(WIDE), zeros(NARROW), zeros(1)  # vectors of zeros


@intrinsic
def load(typing, array, at, like):
    """As many numbers of a flat array as `like` has, from index `at`: of float32, or of uint16 that
    are the bits of bfloat16."""

    def emit(context, builder, signature, args):
        kind = args[2].type
        if signature.args[0].dtype != types.uint16:
            place = _place(context, builder, signature.args[0], args[0], args[1], kind)
            return builder.load(place, align=4)
        ints = ir.VectorType(_INT, kind.count)
        shorts = ir.VectorType(ir.IntType(16), kind.count)
        place = _place(context, builder, signature.args[0], args[0], args[1], shorts)
        bits = builder.zext(builder.load(place, align=2), ints)
        return builder.bitcast(builder.shl(bits, _filled(ints, 16)), kind)

    return like(array, types.intp, like), emit


@intrinsic
def store(typing, array, at, x):
    """Put a vector into a flat array from index `at`: of float32, or of uint16, as the bits of the
    nearest bfloat16 numbers (the even ones of two)."""

    def emit(context, builder, signature, args):
        if signature.args[0].dtype != types.uint16:
            place = _place(context, builder, signature.args[0], args[0], args[1], args[2].type)
            builder.store(args[2], place, align=4)
            return context.get_dummy_value()
        rounded = rounded_bits(builder, args[2])
        shorts = ir.VectorType(ir.IntType(16), rounded.type.count)
        upper = builder.lshr(rounded, _filled(rounded.type, 16))
        place = _place(context, builder, signature.args[0], args[0], args[1], shorts)
        builder.store(builder.trunc(upper, shorts), place, align=2)
        return context.get_dummy_value()

    return types.void(array, types.intp, x), emit


@intrinsic
def spread(typing, number, like):
    """A vector like `like` with this number in all lanes."""

    def emit(context, builder, signature, args):
        return _spread(builder, args[0], args[1].type)

    return like(types.float32, like), emit


@intrinsic
def plus_product(typing, total, number, x):
    """total + number * x, of a vector, a number and a vector."""

    def emit(context, builder, signature, args):
        total, number, x = args
        return _plus_product(builder, total, _spread(builder, number, x.type), x)

    return total(total, types.float32, x), emit


@intrinsic
def plus_product_at(typing, total, array, at, x):
    """total + array[at] * x, of a vector, a flat array's number and a vector. Numbers of the array
    as `load` takes them."""

    def emit(context, builder, signature, args):
        total, array, at, x = args
        data = context.make_array(signature.args[1])(context, builder, array).data
        number = builder.load(builder.gep(data, [at]))
        if signature.args[1].dtype == types.uint16:
            bits = builder.shl(builder.zext(number, _INT), ir.Constant(_INT, 16))
            number = builder.bitcast(bits, _FLOAT)
        return _plus_product(builder, total, _spread(builder, number, x.type), x)

    return total(total, array, types.intp, x), emit


@intrinsic
def plus_products(typing, total, x, y):
    """total + x * y, of three vectors."""

    def emit(context, builder, signature, args):
        return _plus_product(builder, *args)

    return total(total, x, y), emit


def _fetch_to(locality: int) -> Any:
    @intrinsic
    def fetch(typing, array, at):
        def emit(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            place = builder.bitcast(builder.gep(data, [args[1]]), _BYTES)
            kinds = [ir.Constant(_INT, kind) for kind in (0, locality, 1)]  # to be read, of data
            builder.call(_prefetch(builder.module), [place, *kinds])
            return context.get_dummy_value()

        return types.void(array, types.intp), emit

    return fetch


fetch, fetch_far = _fetch_to(3), _fetch_to(2)  # a place of a flat array, or behind it, soon read:
# into the nearest cache, or into the second


@intrinsic
def seen(typing, x, lows, highs, at):
    """x in lanes in which low <= at < high, -inf in the others."""

    def emit(context, builder, signature, args):
        x, lows, highs, at = args
        at = _spread(builder, at, x.type)
        is_above = builder.fcmp_ordered("<=", lows, at)
        is_seen = builder.and_(is_above, builder.fcmp_ordered("<", at, highs))
        return builder.select(is_seen, x, _filled(x.type, -math.inf))

    return x(x, x, x, types.float32), emit


def _of_one(function: Callable[..., ir.Value]) -> Any:
    @intrinsic
    def operation(typing, x):
        def emit(context, builder, signature, args):
            return function(builder, *args)

        return x(x), emit

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


def _exp2(builder, x):
    """2**x as a polynomial of its fraction, times its integer shifted into the exponent's bits."""
    kind, ints = x.type, ir.VectorType(_INT, x.type.count)
    shifted = builder.fadd(x, _filled(kind, _ROUNDER))
    fraction = builder.fsub(x, builder.fsub(shifted, _filled(kind, _ROUNDER)))
    bits = builder.shl(builder.bitcast(shifted, ints), _filled(ints, 23))
    power = builder.bitcast(builder.add(bits, _filled(ints, 127 << 23)), kind)
    result = builder.fmul(_polynomial(builder, fraction, _EXP2), power)
    is_least = builder.fcmp_ordered("<", x, _filled(kind, _LEAST))
    return builder.select(is_least, _filled(kind, 0.0), result)


def _coarse_exp2(builder, x):
    """2**x of 16 lanes, by instructions of AVX-512 that take a number's fraction and exponent."""
    mask, way = ir.Constant(ir.IntType(16), _ALL_LANES), ir.Constant(_INT, _CURRENT)
    reduce = _avx512(builder, "reduce", x.type, [x.type, _INT, x.type, mask.type, _INT])
    fraction = builder.call(reduce, [x, ir.Constant(_INT, _DOWN), x, mask, way])
    result = _polynomial(builder, fraction, _COARSE_EXP2)
    scale = _avx512(builder, "scalef", x.type, [x.type] * 3 + [mask.type, _INT])
    return builder.call(scale, [result, x, x, mask, way])


def _avx512(builder, name, kind, kinds):
    name = f"llvm.x86.avx512.mask.{name}.ps.512"
    return builder.module.declare_intrinsic(name, [], ir.FunctionType(kind, kinds))


def _by_registers(builder, x, function):
    """A function of 16 lanes, of any number of lanes."""
    count, none = x.type.count, ir.Constant(x.type, ir.Undefined)

    def lanes(first, num, vector, nothing):
        kind = ir.VectorType(_INT, num)
        chosen = [ir.Constant(_INT, first + min(i, x.type.count - 1)) for i in range(num)]
        return builder.shuffle_vector(vector, nothing, ir.Constant(kind, chosen))

    if count == _SIXTEEN:
        return function(builder, x)
    if count < _SIXTEEN:
        result = function(builder, lanes(0, _SIXTEEN, x, none))
        return lanes(0, count, result, ir.Constant(result.type, ir.Undefined))
    halves = [function(builder, lanes(at, _SIXTEEN, x, none)) for at in (0, _SIXTEEN)]
    kind = ir.VectorType(_INT, count)
    order = ir.Constant(kind, [ir.Constant(_INT, i) for i in range(count)])
    return builder.shuffle_vector(*halves, order)


def _tanh(builder, x):
    """By exp2 of what is far from zero; near it that would cancel."""
    kind = x.type
    size = builder.select(builder.fcmp_ordered("<", x, _filled(kind, 0.0)), builder.fneg(x), x)
    power = _exp2(builder, builder.fmul(size, _filled(kind, -2 / math.log(2))))
    one = _filled(kind, 1.0)
    far = builder.fdiv(builder.fsub(one, power), builder.fadd(one, power))
    far = builder.select(builder.fcmp_ordered("<", x, _filled(kind, 0.0)), builder.fneg(far), far)
    near = builder.fmul(x, _polynomial(builder, builder.fmul(x, x), _TANH))
    return builder.select(builder.fcmp_ordered("<", size, _filled(kind, _NEAR)), near, far)


@intrinsic
def rounded_for(typing, x, kind):
    """x as it meets numbers like `kind` in products: itself for float32; for uint16, the bits of
    bfloat16, rounded to such numbers where tiles of these are multiplied, so that all loops round
    alike."""

    def emit(context, builder, signature, args):
        x = args[0]
        if signature.args[1] != types.uint16 or not _HAS_TILES:
            return x
        bits = rounded_bits(builder, x)
        return builder.bitcast(builder.and_(bits, _filled(bits.type, _UPPER)), x.type)

    return x(x, kind), emit


@intrinsic
def weight_for(typing, x, kind):
    """2**x as the softmax's weight of a key like `kind`: for float32 as `exp2` has it; for uint16,
    where weights are rounded (`rounded_weight`), within 8e-6, and 1 for 0."""

    def emit(context, builder, signature, args):
        x = args[0]
        if signature.args[1] != types.uint16 or not _HAS_TILES:
            return _exp2(builder, x)
        return _by_registers(builder, x, _coarse_exp2)

    return x(x, kind), emit


@intrinsic
def rounded_weight(typing, x, kind):
    """A weight of `weight_for` as it meets values like `kind` in products: itself for float32; for
    uint16 rounded to bfloat16 where tiles of these are multiplied, halves up."""

    def emit(context, builder, signature, args):
        x = args[0]
        if signature.args[1] != types.uint16 or not _HAS_TILES:
            return x
        bits = rounded_weight_bits(builder, x)
        return builder.bitcast(builder.and_(bits, _filled(bits.type, _UPPER)), x.type)

    return x(x, kind), emit


@intrinsic
def peak_for(typing, x, kind):
    """What powers of two of scores up to x go by: x itself, or the next integer where powers are
    rounded (`rounded_for`): these are rounded alike below any integer."""

    def emit(context, builder, signature, args):
        x = args[0]
        if signature.args[1] != types.uint16 or not _HAS_TILES:
            return x
        kind, name = ir.FunctionType(x.type, [x.type]), f"llvm.ceil.v{x.type.count}f32"
        return builder.call(builder.module.declare_intrinsic(name, [], kind), [x])

    return x(x, kind), emit


def _to_one(function: Callable[..., ir.Value]) -> Any:
    @intrinsic
    def operation(typing, x):
        def emit(context, builder, signature, args):
            return function(builder, *args)

        return types.float32(x), emit

    return operation


def _folded(builder, x, function):
    """The halves of a vector joined until one number is left."""
    while x.type.count > 1:
        half, none = x.type.count // 2, ir.Constant(x.type, ir.Undefined)
        kind = ir.VectorType(_INT, half)
        low, high = (ir.Constant(kind, [at + i for i in range(half)]) for at in (0, half))
        parts = (builder.shuffle_vector(x, none, part) for part in (low, high))
        x = function(builder, *parts)
    return builder.extract_element(x, ir.Constant(_INT, 0))


summed = _to_one(lambda builder, x: _folded(builder, x, lambda b, y, z: b.fadd(y, z)))
highest = _to_one(lambda builder, x: _folded(builder, x, _larger))  # as `larger`
lowest = _to_one(lambda builder, x: _folded(builder, x, _smaller))


plus = _of_two(lambda builder, x, y: builder.fadd(x, y))
minus = _of_two(lambda builder, x, y: builder.fsub(x, y))
times = _of_two(lambda builder, x, y: builder.fmul(x, y))
over = _of_two(lambda builder, x, y: builder.fdiv(x, y))
larger = _of_two(_larger)  # y where it is above x, else x: a NaN in y is passed over
exp2 = _of_one(_exp2)  # 2**x for x below 127, within 1e-7 of it; 0 for x < -126
tanh = _of_one(_tanh)  # the hyperbolic tangent, within 2e-7 of it


def _prefetch(module):
    kind = ir.FunctionType(ir.VoidType(), [_BYTES, _INT, _INT, _INT])
    return module.declare_intrinsic("llvm.prefetch", [_BYTES], kind)


def _filled(kind, value):
    """The same constant in all lanes."""
    return ir.Constant(kind, [value] * kind.count)


def _spread(builder, number, kind):
    none = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(none, number, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, none, _filled(ir.VectorType(_INT, kind.count), 0))


def rounded_bits(builder, x):
    """The bits of numbers whose upper halves are those of the nearest bfloat16 numbers (the even
    ones of two); the lower halves are anything."""
    ints = ir.VectorType(_INT, x.type.count)
    bits = builder.bitcast(x, ints)
    is_odd = builder.and_(builder.lshr(bits, _filled(ints, 16)), _filled(ints, 1))
    rounded = builder.add(builder.add(bits, _filled(ints, _HALF)), is_odd)
    return builder.select(builder.fcmp_unordered("uno", x, x), _filled(ints, _NAN), rounded)


def rounded_weight_bits(builder, x):
    """As `rounded_bits`, of numbers from 0 on; halves go up."""
    ints = ir.VectorType(_INT, x.type.count)
    return builder.add(builder.bitcast(x, ints), _filled(ints, _HALF + 1))


def _plus_product(builder, total, x, y):
    return builder.fadd(total, builder.fmul(x, y, flags=_FUSED), flags=_FUSED)


def _polynomial(builder, x, coefficients):
    """Coefficients from the constant one on."""
    result = _filled(x.type, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = _plus_product(builder, _filled(x.type, coefficient), result, x)
    return result


def _place(context, builder, array_type, array, at, kind):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())
