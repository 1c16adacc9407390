"""SiLU and multiply: the gated activation of an MLP."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch

BLOCK = 1024


@triton.jit
def _silu_mul(gate_up, out, row_stride, out_stride, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < size
    address = gate_up + row * row_stride + column
    gate = tl.load(address, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(address + size, mask=is_column, other=0.0).to(tl.float32)
    activated = (gate * tl.sigmoid(gate)).to(gate_up.dtype.element_ty).to(tl.float32)
    tl.store(
        out + row * out_stride + column, (activated * up).to(out.dtype.element_ty), mask=is_column
    )


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up for rows [tokens, gate then up]; a new [tokens, half]."""
    num_tokens, size = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty((num_tokens, size))
    Launch(num_warps=4, num_stages=1)(
        _silu_mul,
        (num_tokens, -(-size // BLOCK)),
        *(gate_up, out, gate_up.stride(0), out.stride(0), size),
        BLOCK=BLOCK,
    )
    return out
