"""Merges the partial attention results of one token by their log-sum-exp."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, power_of_two

BLOCK = 16  # partial results that are read together


@triton.jit
def _merge(
    partials,
    lse,
    merges,
    out,
    partials_index,
    partials_head,
    lse_index,
    out_token,
    out_head,
    BLOCK: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first, count = tl.load(merges + 2 * token).to(tl.int64), tl.load(merges + 2 * token + 1)
    if count == 0:
        return
    columns, offsets = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    is_column = columns < DIM
    partials += first * partials_index + head * partials_head
    lse += first * lse_index + head
    max_lse = -float("inf")
    weight_sum = 0.0
    acc = tl.zeros([WIDTH], tl.float32)
    for at in range(0, count, BLOCK):
        index = (at + offsets).to(tl.int64)
        is_part = index < count
        part_lse = tl.load(lse + index * lse_index, mask=is_part, other=-float("inf"))
        parts = tl.load(
            partials + index[:, None] * partials_index + columns[None, :],
            mask=is_part[:, None] & is_column[None, :],
            other=0.0,
        )
        new_max = tl.maximum(max_lse, tl.max(part_lse, 0))
        rescale, weights = tl.exp2(max_lse - new_max), tl.exp2(part_lse - new_max)
        acc = acc * rescale + tl.sum(parts * weights[:, None], 0)
        weight_sum = weight_sum * rescale + tl.sum(weights, 0)
        max_lse = new_max
    tl.store(
        out + token * out_token + head * out_head + columns,
        (acc / weight_sum).to(out.dtype.element_ty),
        mask=is_column,
    )


def merge(partials: Tensor, lse: Tensor, merges: Tensor, out: Tensor) -> None:
    """Write into out [tokens, heads, dim] what some tokens' partial results come to.

    partials: [n, heads, dim]. lse: [n, heads], base-2 log-sum-exps. merges: [tokens, 2] int32: the
    first partial result of each token, and how many there are; 0: its output is left as it is.
    """
    num_tokens, num_heads, dim = out.shape
    Launch(num_warps=2 if dim <= 64 else 4, num_stages=1)(
        _merge,
        (num_tokens, num_heads),
        *(partials, lse, merges, out, partials.stride(0), partials.stride(1), lse.stride(0)),
        *(out.stride(0), out.stride(1)),
        BLOCK=BLOCK,
        DIM=dim,
        WIDTH=power_of_two(dim),
    )
