"""Short vectors for tiles of few queries, and transposes: what the attention loops use beside
`vectors`. Needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .vectors import NARROW, WIDE, Vector

FEW = min(WIDE, 16)
SQUARE = NARROW
_LONG, _SQUARE = ir.IntType(64), ir.VectorType(ir.FloatType(), SQUARE)


@intrinsic
def few(typing):
    """A vector of zeros, of FEW lanes."""

    def emit(context, builder, signature, args):
        return ir.Constant(ir.VectorType(ir.FloatType(), FEW), [0.0] * FEW)

    return Vector(FEW)(), emit


@intrinsic
def width(typing, like):
    """How many lanes a vector has; known when a loop is compiled."""

    def emit(context, builder, signature, args):
        return ir.Constant(_LONG, like.width)

    return types.intp(like), emit


@intrinsic
def transpose(typing, numbers, at, stride, out, to, out_stride):
    """Write the square of SQUARE rows of a flat array, which begin `stride` numbers from one
    another from `at` on, as columns of another array, whose rows lie `out_stride` apart from `to`
    on."""

    def emit(context, builder, signature, args):
        numbers, at, stride, out, to, out_stride = args
        rows = []
        for i in range(SQUARE):
            address = _address(context, builder, signature.args[0], numbers, at, stride, i)
            rows.append(builder.load(address, align=4))
        for i, row in enumerate(_transposed(builder, rows)):
            address = _address(context, builder, signature.args[3], out, to, out_stride, i)
            builder.store(row, address, align=4)
        return context.get_dummy_value()

    ints = [types.intp] * 2
    return types.void(numbers, *ints, out, *ints), emit


def _transposed(builder, rows):
    """Swap blocks across the diagonal: halves of the square, halves of these, and so on."""
    size = SQUARE // 2
    while size:
        is_later = [i // size % 2 == 1 for i in range(SQUARE)]
        upper = [SQUARE + i - size if later else i for i, later in enumerate(is_later)]
        lower = [SQUARE + i if later else i + size for i, later in enumerate(is_later)]
        for i in [i for i, later in enumerate(is_later) if not later]:
            pair = rows[i], rows[i + size]
            rows[i], rows[i + size] = (_picked(builder, *pair, at) for at in (upper, lower))
        size //= 2
    return rows


def _picked(builder, x, y, lanes):
    kind = ir.VectorType(ir.IntType(32), SQUARE)
    return builder.shuffle_vector(x, y, ir.Constant(kind, lanes))


def _address(context, builder, kind, array, at, stride, row):
    data = context.make_array(kind)(context, builder, array).data
    at = builder.add(at, builder.mul(stride, ir.Constant(_LONG, row)))
    return builder.bitcast(builder.gep(data, [at]), _SQUARE.as_pointer())
