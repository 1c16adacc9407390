"""Keys and values of new tokens into their slots."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, power_of_two


@triton.jit
def _write(
    pool,
    slots,
    kv,
    pool_row,
    pool_slot,
    kv_token,
    kv_row,
    rows,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    here = (row < rows)[:, None] & (column < DIM)[None, :]
    row = row.to(tl.int64)[:, None]
    values = tl.load(kv + token * kv_token + row * kv_row + column[None, :], mask=here)
    tl.store(pool + row * pool_row + slot * pool_slot + column[None, :], values, mask=here)


def write(pool: Tensor, slots: Tensor, kv: Tensor) -> None:
    """Put kv [tokens, rows, dim] into slots [tokens] of pool [rows, slots, dim], where rows are the
    heads of keys, then of values. Slots of one call differ."""
    num_tokens, num_rows, dim = kv.shape
    rows = min(power_of_two(num_rows), 16)
    Launch(num_warps=4, num_stages=1)(
        _write,
        (num_tokens, -(-num_rows // rows)),
        *(pool, slots, kv, pool.stride(0), pool.stride(1), kv.stride(0), kv.stride(1), num_rows),
        ROWS=rows,
        DIM=dim,
        WIDTH=power_of_two(dim),
    )
