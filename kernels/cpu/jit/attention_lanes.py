"""Short vectors for tiles of few queries, and transposes: what the attention loops use beside
`vectors`. Needs numba."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .vectors import NARROW, WIDE, address_in, shuffled, zeros

FEW = min(WIDE, 16)
SQUARE = NARROW
few = zeros(FEW)
_LONG, _SQUARE = ir.IntType(64), ir.VectorType(ir.FloatType(), SQUARE)


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
            start = builder.add(at, builder.mul(stride, ir.Constant(_LONG, i)))
            address = address_in(context, builder, signature.args[0], numbers, start, _SQUARE)
            rows.append(builder.load(address, align=4))
        for i, row in enumerate(_transposed(builder, rows)):
            start = builder.add(to, builder.mul(out_stride, ir.Constant(_LONG, i)))
            address = address_in(context, builder, signature.args[3], out, start, _SQUARE)
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
            rows[i], rows[i + size] = (shuffled(builder, *pair, at) for at in (upper, lower))
        size //= 2
    return rows
