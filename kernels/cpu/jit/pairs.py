"""Products of pairs of bfloat16 numbers in code that numba compiles (AVX-512 BF16).

A lane of 32 bits holds two adjacent numbers, and an instruction adds the two products of each lane
to a float32 sum: twice as many products as with float32 numbers. Needs numba.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from . import vectors
from .features import has

_LANES = 16  # of one instruction
_INTS = ir.VectorType(ir.IntType(32), _LANES)
_NAME = "llvm.x86.avx512bf16.dpbf16ps.512"
_shuffled: Any = vectors.shuffled


@functools.cache
def can_multiply() -> bool:
    """Whether this process may use these instructions."""
    return has("avx512bf16", "avx512f")


def pair_product(builder: Any, total: Any, x: Any, y: Any) -> Any:
    """total + the sums of both products of each lane; vectors of 16 lanes or a multiple."""
    kind = ir.VectorType(ir.FloatType(), _LANES)
    function = builder.module.declare_intrinsic(
        _NAME, [], ir.FunctionType(kind, [kind, _INTS, _INTS])
    )
    parts = []
    for start in range(0, total.type.count, _LANES):
        lanes = range(start, start + _LANES)
        before, *pairs = (_shuffled(builder, it, it, lanes) for it in (total, x, y))
        parts.append(
            builder.call(function, [before, *(builder.bitcast(it, _INTS) for it in pairs)])
        )
    while len(parts) > 1:
        count = range(2 * parts[0].type.count)
        halves = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffled(builder, *both, count) for both in halves]
    return parts[0]
