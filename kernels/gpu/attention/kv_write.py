"""Keys and values of new tokens into their slots."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, power_of_two


@triton.jit
def _write(
    pool,
    slots,
    kv,
    pool_value,
    pool_head,
    pool_slot,
    kv_token,
    kv_row,
    heads,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    is_element = (row < 2 * heads)[:, None] & (column < DIM)[None, :]
    row = row.to(tl.int64)[:, None]
    values = tl.load(kv + token * kv_token + row * kv_row + column[None, :], mask=is_element)
    offset = (row // heads) * pool_value + (row % heads) * pool_head + slot * pool_slot
    tl.store(pool + offset + column[None, :], values, mask=is_element)


def write(pool: Tensor, slots: Tensor, kv: Tensor) -> None:
    """Put kv [tokens, kv_heads of keys, then of values, dim] into slots [tokens] of pool [2,
    kv_heads, slots, dim]. Slots of one call differ."""
    num_tokens, num_rows, dim = kv.shape
    rows = min(power_of_two(num_rows), 16)
    Launch(num_warps=4, num_stages=1)(
        _write,
        (num_tokens, -(-num_rows // rows)),
        *(pool, slots, kv, pool.stride(0), pool.stride(1), pool.stride(2)),
        *(kv.stride(0), kv.stride(1), pool.shape[1]),
        ROWS=rows,
        DIM=dim,
        WIDTH=power_of_two(dim),
    )
