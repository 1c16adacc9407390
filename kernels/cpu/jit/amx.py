"""AMX tiles in code that numba compiles.

The processor has eight tile registers, 0 to 7, each of 16 rows of 64 bytes. It multiplies two tiles
of bfloat16 numbers into one of float32 sums sixteen times as fast as it multiplies float32. A
float32 number is the exact sum of three bfloat16 terms (bf16x3). Six of the nine products of terms
give float32's precision; the others are below it. Tile numbers are literals. Rows are read and
written three times slower where they are not aligned to 64 bytes. Needs numba.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .features import AMX_BF16, has
from .rounding import rounded_weight_bits
from .vectors import address_in, all_lanes, rounded_bits

ROWS, BYTES = 16, 64  # of a tile
DEPTH = BYTES // 2  # bfloat16 numbers in its row
TERMS = 3
_REQUEST, _TILES = 0x1023, 18  # Linux: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
_ARCH_PRCTL = 158
_BYTE, _INT, _LONG = (ir.IntType(bits) for bits in (8, 32, 64))
_UPPER = 0xFFFF0000  # the bits of a float32 number that are a bfloat16 number
_PALETTE = np.zeros(BYTES, np.uint8)
_PALETTE[0] = 1
_PALETTE[16:32:2] = BYTES  # bytes in a row of each tile
_COUNTS, _TILES_BEFORE = 48, 7
_PALETTE[_COUNTS : _COUNTS + 8] = ROWS
SHAPES = tuple(_PALETTE.view(np.uint64).tolist())  # of all tiles, as `begin` wants them


@functools.cache
def can_multiply() -> bool:
    """Whether this processor multiplies tiles and the system permits this process to. Requests the
    system's permission once."""
    is_known = sys.platform == "linux" and platform.machine() == "x86_64"
    return is_known and has(*AMX_BF16) and _is_allowed()


def _is_allowed() -> bool:
    refusal: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILES)
    return refusal == 0


@intrinsic
def begin(typing, rows):
    """Give all tiles their shapes, and zeros: those before the last one so many rows, at most 16,
    as products take longer the more these are. To be followed by `end` in the same thread."""

    def emit(context, builder, signature, args):
        kind = ir.ArrayType(_LONG, len(SHAPES))
        address = builder.alloca(kind)
        builder.store(ir.Constant(kind, SHAPES), address)
        pointer = builder.bitcast(address, _BYTE.as_pointer())
        count = builder.trunc(args[0], _BYTE)
        for tile in range(_TILES_BEFORE):
            builder.store(count, builder.gep(pointer, [ir.Constant(_INT, _COUNTS + tile)]))
        _call(builder, "ldtilecfg", [_BYTE.as_pointer()], [pointer])
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def end(typing):
    """Release the tiles: context switches of a thread without tiles are faster."""

    def emit(context, builder, signature, args):
        _call(builder, "tilerelease", [], [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic(prefer_literal=True)
def clear(typing, tile):
    """Zeros into a tile."""

    def emit(context, builder, signature, args):
        _call(builder, "tilezero", [_BYTE], [_number(signature.args[0])])
        return context.get_dummy_value()

    return types.void(tile), emit


def _moving(name: str) -> Any:
    @intrinsic(prefer_literal=True)
    def move(typing, tile, array, at, stride):
        def emit(context, builder, signature, args):
            kinds = [_BYTE, _BYTE.as_pointer(), _LONG]
            address = _pointer(context, builder, signature.args[1], args[1], args[2])
            _call(builder, name, kinds, [_number(signature.args[0]), address, args[3]])
            return context.get_dummy_value()

        return types.void(tile, array, types.intp, types.intp), emit

    return move


# Between a tile and a flat array from index `at` on, whose rows lie so many bytes apart.
# What is read once does not take the place of others in the nearest cache.
read, write = _moving("tileloadd64"), _moving("tilestored64")
read_once = _moving("tileloaddt164")


def product(name: str) -> Any:
    """A function of three tiles: an instruction that adds the product of two to sums."""

    @intrinsic(prefer_literal=True)
    def add(typing, sums, left, right):
        def emit(context, builder, signature, args):
            _call(builder, name, [_BYTE] * 3, [_number(tile) for tile in signature.args])
            return context.get_dummy_value()

        return types.void(sums, left, right), emit

    return add


# A tile of sums [16, 16] += left [16, depth] times right, [depth / 2, 16, 2]: the numbers of each
# column in pairs.
add_product = product("tdpbf16ps")


@intrinsic
def copy_row(typing, words, at, others, to):
    """A row of a tile from one flat uint16 array into another."""

    def emit(context, builder, signature, args):
        kind = ir.VectorType(_INT, ROWS)
        source, target = (
            builder.bitcast(
                _pointer(context, builder, signature.args[i], *args[i : i + 2]), kind.as_pointer()
            )
            for i in (0, 2)
        )
        builder.store(builder.load(source, align=2), target, align=2)
        return context.get_dummy_value()

    return types.void(words, types.intp, others, types.intp), emit


@intrinsic
def split(typing, first, second, words, to, stride):
    """Two vectors of 16 lanes (`vectors`) as three times 32 bfloat16 numbers in a flat uint16 array
    from `to` on, with `stride` words from one term to the next: lanes 0 of both, 1 of both, ..."""

    def emit(context, builder, signature, args):
        first, second, words, to, stride = args
        address = functools.partial(_pointer, context, builder, signature.args[2], words)
        _split(builder, [first, second], address, to, stride)
        return context.get_dummy_value()

    return types.void(first, second, words, types.intp, types.intp), emit


def _rounding(rounded_bits: Any) -> Any:
    @intrinsic
    def store_rounded(typing, first, second, words, to):
        def emit(context, builder, signature, args):
            first, second, words, to = args
            ints = ir.VectorType(_INT, ROWS)
            first, second = (rounded_bits(builder, half) for half in (first, second))
            upper = builder.and_(second, all_lanes(ints, _UPPER))
            pairs = builder.or_(builder.lshr(first, all_lanes(ints, 16)), upper)
            address = _pointer(context, builder, signature.args[2], words, to)
            builder.store(pairs, builder.bitcast(address, ints.as_pointer()), align=2)
            return context.get_dummy_value()

        return types.void(first, second, words, types.intp), emit

    return store_rounded


# The same, each number rounded to one bfloat16 number: to the nearest, or as a softmax's weight
# (`rounding.rounded_weight`).
store_rounded, store_rounded_weights = _rounding(rounded_bits), _rounding(rounded_weight_bits)


def _split(builder, halves, address, to, stride):
    """Two vectors of 16 lanes as bfloat16 terms; address: of an index."""
    floats, ints = halves[0].type, ir.VectorType(_INT, ROWS)
    mask, shift = all_lanes(ints, _UPPER), all_lanes(ints, 16)
    for term in range(TERMS):
        first, second = (builder.bitcast(half, ints) for half in halves)
        uppers = [builder.and_(half, mask) for half in (first, second)]
        pairs = builder.or_(builder.lshr(first, shift), uppers[1])
        builder.store(pairs, builder.bitcast(address(to), ints.as_pointer()), align=2)
        if term < TERMS - 1:
            upper_floats = [builder.bitcast(half, floats) for half in uppers]
            halves = [builder.fsub(*both) for both in zip(halves, upper_floats, strict=True)]
            to = builder.add(to, stride)


def _call(builder, name, kinds, args):
    kind = ir.FunctionType(ir.VoidType(), kinds)
    builder.call(builder.module.declare_intrinsic(f"llvm.x86.{name}", [], kind), args)


def _number(tile):
    return ir.Constant(_BYTE, tile.literal_value)


def _pointer(context, builder, kind, array, at):
    return address_in(context, builder, kind, array, at, _BYTE)
