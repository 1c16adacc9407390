"""Root mean square norms of rows, with and without adding a residual first."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, power_of_two


@triton.jit
def _norm(
    x,
    added,
    weight,
    out,
    eps,
    x_row,
    x_part,
    added_row,
    out_row,
    out_part,
    parts,
    weight_part,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    IS_ADDED: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    row, part = program // parts, program % parts
    columns = tl.arange(0, WIDTH)
    is_column = columns < SIZE
    place = x + row * x_row + part * x_part + columns
    values = tl.load(place, mask=is_column, other=0.0).to(tl.float32)
    if IS_ADDED:
        values += tl.load(added + row * added_row + columns, mask=is_column, other=0.0).to(
            tl.float32
        )
        kept = values.to(x.dtype.element_ty)
        tl.store(place, kept, mask=is_column)
        values = kept.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / SIZE + eps)
    scaled = (values * scale).to(x.dtype.element_ty).to(tl.float32)
    gain = tl.load(weight + part * weight_part + columns, mask=is_column, other=0.0)
    tl.store(
        out + row * out_row + part * out_part + columns,
        (scaled * gain.to(tl.float32)).to(out.dtype.element_ty),
        mask=is_column,
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """Every row of x [tokens, size], or [tokens, heads, size], scaled to root mean square 1, then
    by weight [size], or [heads, size]; into `out` (x itself is allowed) or new memory."""
    out = torch.empty_like(x) if out is None else out
    rows = x[:, None] if x.ndim == 2 else x
    there = out[:, None] if out.ndim == 2 else out
    num_tokens, parts, size = rows.shape
    weight_part = weight.stride(0) if weight.ndim == 2 else 0
    _launch(size)(
        _norm,
        (num_tokens * parts,),
        *(rows, rows, weight, there, eps, rows.stride(0), rows.stride(1), 0),
        *(there.stride(0), there.stride(1), parts, weight_part),
        SIZE=size,
        WIDTH=power_of_two(size),
        IS_ADDED=False,
    )
    return out


def add_rms_norm(residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """residual += x, both [tokens, size]; a new tensor with the norm of its rows."""
    out = torch.empty_like(residual)
    num_tokens, size = residual.shape
    _launch(size)(
        _norm,
        (num_tokens,),
        *(residual, x, weight, out, eps, residual.stride(0), 0, x.stride(0)),
        *(out.stride(0), 0, 1, 0),
        SIZE=size,
        WIDTH=power_of_two(size),
        IS_ADDED=True,
    )
    return out


def _launch(size: int) -> Launch:
    return Launch(num_warps=1 if size <= 256 else 4 if size <= 2048 else 8, num_stages=1)
