"""AMX tiles in code that numba compiles.

The processor has eight tile registers, 0 to 7, each of 16 rows of 64 bytes. It multiplies two tiles
of bfloat16 numbers into one of float32 sums sixteen times as fast as it multiplies float32. A
float32 number is the exact sum of three bfloat16 terms (bf16x3). Six of the nine products of terms
give float32's precision; the others are below it. Tile numbers are literals. Rows are read and
written three times slower where they are not aligned to 64 bytes. Needs numba.
"""

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
_SIZES, _COUNTS, _TILES_BEFORE = 16, 48, 7  # where bytes of a row, and rows, of each tile are
_PALETTE[_SIZES : _SIZES + 16 : 2] = BYTES
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
        count = builder.trunc(args[0], _BYTE)
        _configure(builder, {_COUNTS + tile: count for tile in range(_TILES_BEFORE)})
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def begin_narrow(typing, columns):
    """The same, of so many columns, float32 numbers or pairs, of tiles 0 to 3 and 6; all have 16
    rows."""

    def emit(context, builder, signature, args):
        size = builder.trunc(builder.mul(args[0], ir.Constant(_LONG, BYTES // ROWS)), _BYTE)
        _configure(builder, {_SIZES + 2 * tile: size for tile in (0, 1, 2, 3, 6)})
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


# Between a tile and a flat array from index `at` on, or an address, whose rows lie so many bytes
# apart.
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


def _configure(builder, changes):
    """Give all tiles 16 rows of 64 bytes, but for some bytes of the configuration."""
    kind = ir.ArrayType(_LONG, len(SHAPES))
    address = builder.alloca(kind)
    builder.store(ir.Constant(kind, SHAPES), address)
    pointer = builder.bitcast(address, _BYTE.as_pointer())
    for place, value in changes.items():
        builder.store(value, builder.gep(pointer, [ir.Constant(_INT, place)]))
    _call(builder, "ldtilecfg", [_BYTE.as_pointer()], [pointer])


@intrinsic
def pack_bf16(typing, first, second, address):
    """Two vectors of 16 bfloat16 numbers, stored as float32, as 32 numbers side by side."""

    def emit(context, builder, signature, args):
        kind = ir.VectorType(ir.IntType(16), DEPTH)
        halves = [builder.bitcast(x, kind) for x in args[:2]]
        uppers = ir.Constant(ir.VectorType(_INT, DEPTH), list(range(1, 2 * DEPTH, 2)))
        pointer = builder.inttoptr(args[2], kind.as_pointer())
        builder.store(builder.shuffle_vector(*halves, uppers), pointer, align=2)
        return context.get_dummy_value()

    return types.void(first, second, types.intp), emit


@intrinsic
def pack_pairs(typing, first, second, to):
    """16 bfloat16 numbers at one address, and 16 at another, as a row of a tile: in pairs."""

    def emit(context, builder, signature, args):
        shorts, ints = (ir.VectorType(ir.IntType(bits), ROWS) for bits in (16, 32))
        halves = []
        for address in args[:2]:
            pointer = builder.inttoptr(address, shorts.as_pointer())
            halves.append(builder.zext(builder.load(pointer, align=2), ints))
        upper = builder.shl(halves[1], ir.Constant(ints, [16] * ROWS))
        pointer = builder.inttoptr(args[2], ints.as_pointer())
        builder.store(builder.or_(halves[0], upper), pointer, align=4)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), emit


@intrinsic
def spacing_of(typing, address):
    """The distance of 16 int32 numbers at an address, where each is so much more than the one
    before; else 0."""

    def emit(context, builder, signature, args):
        ints, zero = ir.VectorType(_INT, ROWS), _INT(0)
        numbers = builder.load(builder.inttoptr(args[0], ints.as_pointer()), align=4)
        first, second = (builder.extract_element(numbers, _INT(i)) for i in range(2))
        step = builder.sub(second, first)
        expected = ir.Constant(ints, list(range(ROWS)))
        for number, combine in ((step, builder.mul), (first, builder.add)):
            lanes = builder.insert_element(ir.Constant(ints, ir.Undefined), number, zero)
            lanes = builder.shuffle_vector(lanes, lanes, ir.Constant(ints, [0] * ROWS))
            expected = combine(expected, lanes)
        differing = builder.bitcast(
            builder.icmp_unsigned("!=", numbers, expected), ir.IntType(ROWS)
        )
        is_even = builder.icmp_unsigned("==", differing, ir.IntType(ROWS)(0))
        is_even = builder.and_(is_even, builder.icmp_signed(">", step, zero))
        return builder.sext(builder.select(is_even, step, zero), _LONG)

    return types.intp(types.intp), emit


def _unzipping(columns: int) -> Any:
    @intrinsic
    def unzip(typing, at, to, stride):
        """[16, columns] float32 numbers at an address as columns [columns, 16], whose rows lie so
        many numbers apart."""

        def emit(context, builder, signature, args):
            at, to, stride = args
            kind = ir.VectorType(ir.FloatType(), ROWS)
            begin_at = builder.inttoptr(at, kind.as_pointer())
            rows = [
                builder.load(builder.gep(begin_at, [_LONG(i)]), align=4) for i in range(columns)
            ]
            size = builder.mul(stride, _LONG(BYTES // ROWS))
            for row in _deinterleaved(builder, rows):
                builder.store(row, builder.inttoptr(to, kind.as_pointer()), align=4)
                to = builder.add(to, size)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), emit

    return unzip


def _deinterleaved(builder, rows):
    """Numbers of vectors that follow one another, as so many columns in turn."""
    if len(rows) == 1:
        return rows
    halves = []
    for start in range(2):
        order = ir.Constant(ir.VectorType(_INT, ROWS), list(range(start, 2 * ROWS, 2)))
        pairs = zip(rows[::2], rows[1::2], strict=True)
        each = [builder.shuffle_vector(*pair, order) for pair in pairs]
        halves.append(_deinterleaved(builder, each))
    return [row for two in zip(*halves, strict=True) for row in two]


unzip_1, unzip_2, unzip_4 = _unzipping(1), _unzipping(2), _unzipping(4)
unzip_8, unzip_16 = _unzipping(8), _unzipping(16)


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
    """Of index `at` of an array; of a byte behind an address."""
    if isinstance(kind, types.Integer):
        return builder.inttoptr(builder.add(array, at), _BYTE.as_pointer())
    return address_in(context, builder, kind, array, at, _BYTE)
