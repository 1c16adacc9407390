"""Float32 numbers split into int8 limbs, which a processor with AMX multiplies exactly, in code
that numba compiles.

A row's numbers are integers of 24 bits times the row's unit; an integer is three limbs to the base
256. The processor adds up products of tiles of limbs in integers, twice as fast as those of
bfloat16 numbers, and sums are the same in any order. Eight of the nine products of limbs give
float32's precision in rows whose numbers are of like size. Tile numbers are literals. Needs numba.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..jit import amx
from ..jit.callees import callee
from ..jit.features import has
from ..jit.vectors import Vector, address_in, folded

LIMBS = 3
NUM_PRODUCTS = 4  # orders of magnitude of products of limbs, each summed by itself
DEPTH = amx.BYTES  # limbs in a row of a tile
LANES = amx.ROWS
TILE = amx.ROWS * DEPTH // 4  # float32 numbers in as many bytes as one limb of a tile's numbers
MAX_SIGNED = 127.0 * 256**2  # the integer of a row's greatest number
MAX_UNSIGNED = 255.0 * 256**2  # the same for non-negative numbers
UNIT = 256.0**2  # of sums, where that of both rows is 1
_SHORT, _INT = ir.IntType(16), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_INT, LANES)
_SIZE = 0x7FFFFFFF  # the bits of a float32 number but for its sign
_CURRENT = 4  # rounding: to the nearest integer
_FUSED = ("contract",)


@functools.cache
def can_multiply() -> bool:
    """Whether this processor multiplies int8 tiles and the system lets this process do so; the
    result is cached."""
    return has("amxint8") and amx.can_multiply()


# A tile of sums [16, 16] += left [16, 64] times right [16, 16, 4], the limbs of each column in
# groups of four. Limbs are signed, but for the right ones of the second function.
add_product, add_product_unsigned = amx.product("tdpbssd"), amx.product("tdpbsud")


def _storing(is_signed: bool) -> Any:
    @intrinsic
    def store_limbs(typing, x0, x1, x2, x3, array, to, stride):
        def emit(context, builder, signature, args):
            *numbers, array, to, stride = args
            ints = [_rounded(builder, x) for x in numbers]
            for limb in _limbs(builder, ints, is_signed):
                pointer = address_in(context, builder, signature.args[4], array, to, _INTS)
                builder.store(limb, pointer, align=4)
                to = builder.add(to, stride)
            return context.get_dummy_value()

        return types.void(x0, x1, x2, x3, array, types.intp, types.intp), emit

    return store_limbs


# Round four vectors of 16 numbers and write their limbs into a flat float32 array, four limbs of
# one lane to a number: the highest limbs from `to` on, the others `stride` behind these. The second
# function takes non-negative numbers.
store_limbs, store_limbs_unsigned = _storing(True), _storing(False)


@intrinsic
def combine_sums(typing, array, at, stride):
    """16 sums of products of limbs as a vector. The sums of the highest order begin at index `at`
    of a flat array; those of the other three lie so many numbers apart."""

    def emit(context, builder, signature, args):
        array, at, stride = args
        sums = []
        for _ in range(NUM_PRODUCTS):
            pointer = address_in(context, builder, signature.args[0], array, at, _INTS)
            sums.append(builder.load(pointer, align=4))
            at = builder.add(at, stride)
        low = builder.add(sums[2], builder.ashr(sums[3], _filled(8)))
        low = builder.add(builder.shl(sums[1], _filled(8)), low)
        base = ir.Constant(_FLOATS, [256.0**2] * LANES)
        high = builder.fmul(builder.sitofp(sums[0], _FLOATS), base, flags=_FUSED)
        return builder.fadd(high, builder.sitofp(low, _FLOATS), flags=_FUSED)

    return Vector(LANES)(array, types.intp, types.intp), emit


@intrinsic
def larger_magnitude(typing, x, y):
    """The larger of non-negative numbers and the magnitudes of others: NaN is the largest, then
    infinity."""

    def emit(context, builder, signature, args):
        x, y = (builder.bitcast(number, _INTS) for number in args)
        return builder.bitcast(_larger(builder, x, builder.and_(y, _filled(_SIZE))), _FLOATS)

    return x(x, x), emit


@intrinsic
def largest_magnitude(typing, x):
    """The largest of a vector's non-negative numbers, as `larger_magnitude` has it."""

    def emit(context, builder, signature, args):
        number = folded(builder, builder.bitcast(args[0], _INTS), _larger)
        return builder.bitcast(number, ir.FloatType())

    return types.float32(x), emit


def _with(add):
    @callee
    def multiply(limbs, left):
        """Add the products of a tile's limbs and those in registers 5 to 7 to sums."""
        amx.read(3, limbs, left, amx.BYTES)
        add(2, 3, 7)
        add(1, 3, 6)
        add(0, 3, 5)
        amx.read(3, limbs, left + TILE, amx.BYTES)
        add(4, 3, 7)
        add(2, 3, 6)
        add(1, 3, 5)
        amx.read(3, limbs, left + 2 * TILE, amx.BYTES)
        add(4, 3, 6)
        add(2, 3, 5)

    return multiply


multiply, multiply_unsigned = _with(add_product), _with(add_product_unsigned)


@callee
def load_right(limbs, at):
    """Load a tile's limbs into registers 5 to 7."""
    amx.read(5, limbs, at, amx.BYTES)
    amx.read(6, limbs, at + TILE, amx.BYTES)
    amx.read(7, limbs, at + 2 * TILE, amx.BYTES)


@callee
def clear_sums():
    """Clear registers 0, 1, 2 and 4."""
    amx.clear(0)
    amx.clear(1)
    amx.clear(2)
    amx.clear(4)


@callee
def store_sums(sums, to):
    """Write [4, 16, 16] from index `to` of a flat array on."""
    amx.write(0, sums, to, amx.BYTES)
    amx.write(1, sums, to + TILE, amx.BYTES)
    amx.write(2, sums, to + 2 * TILE, amx.BYTES)
    amx.write(4, sums, to + 3 * TILE, amx.BYTES)


def _larger(builder, x, y):
    return builder.select(builder.icmp_unsigned(">", y, x), y, x)


def _rounded(builder, x):
    """To integers."""
    kind = ir.FunctionType(_INTS, [_FLOATS, _INTS, _SHORT, _INT])
    name = "llvm.x86.avx512.mask.cvtps2dq.512"
    function = builder.module.declare_intrinsic(name, [], kind)
    all_lanes, rounding = ir.Constant(_SHORT, -1), ir.Constant(_INT, _CURRENT)
    return builder.call(function, [x, _filled(0), all_lanes, rounding])


def _limbs(builder, ints, is_signed):
    """The highest, middle and lowest limbs of four vectors, each four of a lane in one integer.
    With signs: half the base is added to every limb, and then subtracted again from each."""

    def blend(x, y, mask):
        rest = builder.and_(y, _filled(~mask & 0xFFFFFFFF))
        return builder.or_(builder.and_(x, _filled(mask)), rest)

    def up(x, bits):
        return builder.shl(x, _filled(bits))

    def down(x, bits):
        return builder.lshr(x, _filled(bits))

    if is_signed:
        ints = [builder.add(x, _filled(0x808080)) for x in ints]
    x0, x1, x2, x3 = ints
    even, odd = blend(x0, up(x2, 16), 0xFFFF), blend(x1, up(x3, 16), 0xFFFF)
    lowest = blend(even, up(odd, 8), 0xFF00FF)
    middle = blend(down(even, 8), odd, 0xFF00FF)
    even, odd = blend(down(x0, 16), x2, 0xFFFF), blend(down(x1, 16), x3, 0xFFFF)
    limbs = blend(even, up(odd, 8), 0xFF00FF), middle, lowest
    return [builder.xor(x, _filled(0x80808080)) for x in limbs] if is_signed else limbs


def _filled(value):
    return ir.Constant(_INTS, [value] * LANES)
