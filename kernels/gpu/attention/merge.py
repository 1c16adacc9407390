"""Puts together what several programs found of one token: softmax over parts of its keys, each
weighted by the sum behind it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, power_of_two


@triton.jit
def _merge(
    parts,
    totals,
    out,
    parts_level,
    parts_token,
    parts_head,
    totals_level,
    totals_token,
    out_token,
    out_head,
    levels,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < DIM
    parts += token * parts_token + head * parts_head + columns
    totals += token * totals_token + head
    highest = -float("inf")
    weight = 0.0
    mixed = tl.zeros([WIDTH], tl.float32)
    for level in range(0, levels):
        total = tl.load(totals + level * totals_level)
        if total > -float("inf"):
            part = tl.load(parts + level * parts_level, mask=is_column, other=0.0).to(tl.float32)
            higher = tl.maximum(highest, total)
            shrink, share = tl.exp2(highest - higher), tl.exp2(total - higher)
            mixed = mixed * shrink + part * share
            weight = weight * shrink + share
            highest = higher
    result = mixed / tl.where(weight == 0.0, 1.0, weight)
    tl.store(
        out + token * out_token + head * out_head + columns,
        result.to(out.dtype.element_ty),
        mask=is_column,
    )


def merge(parts: Tensor, totals: Tensor, out: Tensor) -> None:
    """Write into out [tokens, heads, dim] what parts [levels, tokens, heads, dim] come to, by
    totals [levels, tokens, heads], base-2 log-sum-exps; where that is -inf, a part is not read."""
    levels, num_tokens, num_heads, dim = parts.shape
    Launch(num_warps=1 if dim <= 64 else 2, num_stages=1)(
        _merge,
        (num_tokens, num_heads),
        *(parts, totals, out, parts.stride(0), parts.stride(1), parts.stride(2)),
        *(totals.stride(0), totals.stride(1), out.stride(0), out.stride(1), levels),
        DIM=dim,
        WIDTH=power_of_two(dim),
    )
