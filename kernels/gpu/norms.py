"""Root mean square norms of rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, power_of_two


@triton.jit
def _norm(
    x,
    weight,
    out,
    eps,
    x_row,
    x_head,
    out_row,
    out_head,
    heads,
    weight_head,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    columns = tl.arange(0, WIDTH)
    is_column = columns < SIZE
    address = x + row * x_row + head * x_head + columns
    values = tl.load(address, mask=is_column, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / SIZE + eps)
    scaled = (values * scale).to(x.dtype.element_ty).to(tl.float32)
    scale_weight = tl.load(weight + head * weight_head + columns, mask=is_column, other=0.0)
    tl.store(
        out + row * out_row + head * out_head + columns,
        (scaled * scale_weight.to(tl.float32)).to(out.dtype.element_ty),
        mask=is_column,
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """Every row of x [tokens, size], or [tokens, heads, size], scaled to root mean square 1, then
    by weight [size], or [heads, size]; into `out` (x itself is allowed) or new memory."""
    out = torch.empty_like(x) if out is None else out
    num_tokens, *some, size = x.shape
    heads = some[0] if some else 1
    x_head, out_head = (it.stride(1) if some else 0 for it in (x, out))
    weight_head = weight.stride(0) if weight.ndim == 2 else 0
    launch = Launch(num_warps=1 if size <= 256 else 4 if size <= 2048 else 8, num_stages=1)
    launch(
        _norm,
        (num_tokens * heads,),
        *(x, weight, out, eps, x.stride(0), x_head, out.stride(0), out_head, heads, weight_head),
        SIZE=size,
        WIDTH=power_of_two(size),
    )
    return out
