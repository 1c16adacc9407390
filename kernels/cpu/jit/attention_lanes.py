"""What attention's loops need of vectors beside `vectors`: tiles of few queries, and squares of
numbers turned. Needs numba.
"""

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
def turn(typing, numbers, at, apart, turned, to, turned_apart):
    """The square of SQUARE rows of a flat array, which begin `apart` numbers from one another from
    `at` on, as columns of another array, whose rows lie `turned_apart` from `to` on."""

    def emit(context, builder, signature, args):
        numbers, at, apart, turned, to, turned_apart = args
        rows = []
        for i in range(SQUARE):
            place = _place(context, builder, signature.args[0], numbers, at, apart, i)
            rows.append(builder.load(place, align=4))
        for i, row in enumerate(_turned(builder, rows)):
            place = _place(context, builder, signature.args[3], turned, to, turned_apart, i)
            builder.store(row, place, align=4)
        return context.get_dummy_value()

    ints = [types.intp] * 2
    return types.void(numbers, *ints, turned, *ints), emit


def _turned(builder, rows):
    """Blocks across the diagonal change places: the halves of the square, of these, and so on."""
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


def _picked(builder, x, y, places):
    kind = ir.VectorType(ir.IntType(32), SQUARE)
    return builder.shuffle_vector(x, y, ir.Constant(kind, places))


def _place(context, builder, kind, array, at, apart, row):
    data = context.make_array(kind)(context, builder, array).data
    at = builder.add(at, builder.mul(apart, ir.Constant(_LONG, row)))
    return builder.bitcast(builder.gep(data, [at]), _SQUARE.as_pointer())
