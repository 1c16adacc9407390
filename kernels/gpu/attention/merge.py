"""Merges the partial attention results of one token by their log-sum-exp."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, power_of_two


@triton.jit
def _merge(
    partials,
    lse,
    out,
    partials_level,
    partials_token,
    partials_head,
    lse_level,
    lse_token,
    out_token,
    out_head,
    levels,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < DIM
    partials += token * partials_token + head * partials_head + columns
    lse += token * lse_token + head
    max_lse = -float("inf")
    weight_sum = 0.0
    acc = tl.zeros([WIDTH], tl.float32)
    for level in range(0, levels):
        level_lse = tl.load(lse + level * lse_level)
        if level_lse > -float("inf"):
            partial = tl.load(partials + level * partials_level, mask=is_column, other=0.0).to(
                tl.float32
            )
            new_max = tl.maximum(max_lse, level_lse)
            rescale, weight = tl.exp2(max_lse - new_max), tl.exp2(level_lse - new_max)
            acc = acc * rescale + partial * weight
            weight_sum = weight_sum * rescale + weight
            max_lse = new_max
    result = acc / tl.where(weight_sum == 0.0, 1.0, weight_sum)
    tl.store(
        out + token * out_token + head * out_head + columns,
        result.to(out.dtype.element_ty),
        mask=is_column,
    )


def merge(partials: Tensor, lse: Tensor, out: Tensor) -> None:
    """Write into out [tokens, heads, dim] what partials [levels, tokens, heads, dim] come to, by
    lse [levels, tokens, heads], base-2 log-sum-exps; where that is -inf, a part is not read."""
    levels, num_tokens, num_heads, dim = partials.shape
    Launch(num_warps=1 if dim <= 64 else 2, num_stages=1)(
        _merge,
        (num_tokens, num_heads),
        *(partials, lse, out, partials.stride(0), partials.stride(1), partials.stride(2)),
        *(lse.stride(0), lse.stride(1), out.stride(0), out.stride(1), levels),
        DIM=dim,
        WIDTH=power_of_two(dim),
    )
