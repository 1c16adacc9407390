"""Vectors of float32 at memory addresses, for loops in which array objects cost too much: numba
counts references on every call, and checks every index for a negative one. Also sums of several
vectors at once.

Nothing is checked, and no array is kept alive. Needs numba.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .vectors import (
    WIDE,
    fused,
    prefetch,
    shuffled,
    spread_lanes,
    stored_kind,
    widened,
    zeros,
)

HALF = max(WIDE // 2, 8)  # lanes of a register
MANY = 4 * HALF
_FOUR, _LINE = 4, 64  # bytes that a cache fetches at a time
_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()


half, many = zeros(HALF), zeros(MANY)  # zeros: one register, and four


@intrinsic
def read(typing, address, like):
    """As many numbers as `like` has."""

    def emit(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], args[1].type.as_pointer())
        return builder.load(pointer, align=4)

    return like(types.intp, like), emit


@intrinsic
def zero_like(typing, array):
    """A zero of an array's dtype, from which `read_as` knows how numbers are stored."""

    def emit(context, builder, signature, args):
        return ir.Constant(context.get_value_type(signature.return_type), 0)

    return array.dtype(array), emit


@intrinsic
def in_bytes(typing, size, kind):
    """Bytes of as many numbers like `kind` as float32 numbers lie in so many bytes."""

    def emit(context, builder, signature, args):
        is_single = signature.args[1] == types.float32
        return args[0] if is_single else builder.lshr(args[0], ir.Constant(_LONG, 1))

    return types.intp(types.intp, kind), emit


@intrinsic
def read_as(typing, address, kind, like):
    """As many numbers as `like` has, stored as `kind` is: as `vectors.load` takes them."""

    def emit(context, builder, signature, args):
        address, _, like = args
        stored = stored_kind(signature.args[1], like.type.count)
        pointer = builder.inttoptr(address, stored.as_pointer())
        return widened(builder, builder.load(pointer, align=2), signature.args[1])

    return like(types.intp, kind, like), emit


@intrinsic
def write(typing, address, x):
    def emit(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], args[1].type.as_pointer())
        builder.store(args[1], pointer, align=4)
        return context.get_dummy_value()

    return types.void(types.intp, x), emit


@intrinsic
def load_float(typing, address):
    """The float32 at an address."""

    def emit(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], _FLOAT.as_pointer()))

    return types.float32(types.intp), emit


@intrinsic
def store_float(typing, address, number):
    """Write a float32 to an address."""

    def emit(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], _FLOAT.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.intp, types.float32), emit


@intrinsic
def load_slot(typing, address):
    """The int32 at an address."""

    def emit(context, builder, signature, args):
        return builder.sext(builder.load(builder.inttoptr(args[0], _INT.as_pointer())), _LONG)

    return types.intp(types.intp), emit


@intrinsic
def fetch(typing, address):
    """Prefetch the cache line at an address into the second-level cache."""

    def emit(context, builder, signature, args):
        prefetch(builder, builder.inttoptr(args[0], _BYTES), 2)
        return context.get_dummy_value()

    return types.void(types.intp), emit


@intrinsic
def fma_scalar(typing, total, address, x):
    """total + number * x, of a vector, a number at an address and a vector."""

    def emit(context, builder, signature, args):
        total, address, x = args
        number = builder.load(builder.inttoptr(address, _FLOAT.as_pointer()))
        return fused(builder, total, spread_lanes(builder, number, x.type), x)

    return total(total, types.intp, x), emit


@intrinsic
def fma_parts(typing, total, x, y):
    """total + the products of x and y, parts of which are as long as total, one after another."""

    def emit(context, builder, signature, args):
        total, x, y = args
        width = total.type.count
        for start in range(0, x.type.count, width):
            lanes = list(range(start, start + width))
            parts = (shuffled(builder, of, of, lanes) for of in (x, y))
            total = fused(builder, total, *parts)
        return total

    return total(total, x, y), emit


@intrinsic
def interleave_sums(typing, x0, x1, x2, x3):
    """Four vectors as one, whose lanes i, 4 + i, 8 + i, ... add up to the sum of vector i."""

    def emit(context, builder, signature, args):
        width = args[0].type.count
        starts = range(0, width, _FOUR)
        interleaved = [i + at for i in starts for at in (0, width, 1, width + 1)]  # x0 y0 x1 y1
        in_pairs = [i + at for i in starts for at in (0, 1, width, width + 1)]  # x0 x1 y0 y1
        x0, x1, x2, x3 = args
        low, high = (
            _picked_sums(builder, x0, x1, interleaved),
            _picked_sums(builder, x2, x3, interleaved),
        )
        return _picked_sums(builder, low, high, in_pairs)

    return x0(x0, x0, x0, x0), emit


@intrinsic
def reduce_interleaved(typing, address, like):
    """The sums of as many vectors as `like` has lanes, interleaved by `interleave_sums`."""

    def emit(context, builder, signature, args):
        address, kind = args[0], args[1].type
        width, starts = kind.count, []
        for i in range(width // _FOUR):
            at = builder.add(address, ir.Constant(_LONG, 4 * width * i))
            starts.append(builder.load(builder.inttoptr(at, kind.as_pointer()), align=4))
        low = [i for i in range(2 * width) if i & _FOUR == 0]
        while len(starts) > 1:
            pairs = zip(starts[::2], starts[1::2], strict=True)
            starts = [_picked_sums(builder, x, y, low, _FOUR) for x, y in pairs]
        return starts[0]

    return like(types.intp, like), emit


def _picked_sums(builder, x, y, lanes, distance=2):
    """The sums of lanes of x and y that lie `distance` apart, from these lanes on."""
    later = [i + distance for i in lanes]
    return builder.fadd(*(shuffled(builder, x, y, which) for which in (lanes, later)))
