"""Rotary position encoding of adjacent pairs (GPT-J style), in place or on the way to the pool."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, power_of_two


@triton.jit
def _apply_rotary(
    x,
    cos_sin,
    x_token,
    x_head,
    cos_sin_token,
    heads,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pair = tl.arange(0, WIDTH)
    is_pair = pair < PAIRS
    is_element = (head < heads)[:, None] & is_pair[None, :]
    cos_sin_address = cos_sin + token * cos_sin_token + 2 * pair
    cosine = tl.load(cos_sin_address, mask=is_pair, other=0.0)[None, :]
    sine = tl.load(cos_sin_address + 1, mask=is_pair, other=0.0)[None, :]
    address = x + token * x_token + head[:, None] * x_head + 2 * pair[None, :]
    first = tl.load(address, mask=is_element, other=0.0).to(tl.float32)
    second = tl.load(address + 1, mask=is_element, other=0.0).to(tl.float32)
    rotated = first * cosine - second * sine
    tl.store(address, rotated.to(x.dtype.element_ty), mask=is_element)
    rotated = first * sine + second * cosine
    tl.store(address + 1, rotated.to(x.dtype.element_ty), mask=is_element)


def apply_rotary(x: Tensor, cos_sin: Tensor) -> None:
    """Rotate the pairs (0, 1), (2, 3), ... of x [tokens, heads, dim] in place by complex numbers,
    cos_sin [tokens, 1, dim / 2]."""
    num_tokens, num_heads, dim = x.shape
    real = torch.view_as_real(cos_sin)  # [tokens, 1, dim / 2, 2]
    heads = min(power_of_two(num_heads), 8)
    Launch(num_warps=4, num_stages=1)(
        _apply_rotary,
        (num_tokens, -(-num_heads // heads)),
        *(x, real, x.stride(0), x.stride(1), real.stride(0), num_heads),
        HEADS=heads,
        PAIRS=dim // 2,
        WIDTH=power_of_two(dim // 2),
    )


@triton.jit
def encoded(
    loaded,
    rotation,
    norm_weight,
    eps,
    is_element,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_NORM: tl.constexpr,
):
    """Queries or keys [ROWS, WIDTH] scaled by their norm, whose weights are at addresses
    norm_weight, and rotated by cosines and sines in turn, rotation [WIDTH]."""
    values = loaded.to(tl.float32)
    if HAS_NORM:  # rounded as in `norms`
        scale = tl.rsqrt(tl.sum(values * values, 1) / DIM + eps)
        scaled = (values * scale[:, None]).to(loaded.dtype).to(tl.float32)
        weight = tl.load(norm_weight, mask=is_element, other=0.0)
        values = (scaled * weight.to(tl.float32)).to(loaded.dtype).to(tl.float32)
    cosine, sine = tl.split(tl.reshape(rotation, [1, WIDTH // 2, 2]))
    first, second = tl.split(tl.reshape(values, [ROWS, WIDTH // 2, 2]))
    rotated = tl.join(first * cosine - second * sine, first * sine + second * cosine)
    return tl.reshape(rotated, [ROWS, WIDTH]).to(loaded.dtype)


@triton.jit
def _rotate_and_write(
    qkv,
    norm_weight,
    cos_sin,
    pool,
    slots,
    eps,
    qkv_token,
    qkv_row,
    weight_row,
    cos_sin_token,
    pool_value,
    pool_head,
    pool_slot,
    heads,
    kv_heads,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_NORM: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    is_column = column < DIM
    is_element = (row < heads + 2 * kv_heads)[:, None] & is_column[None, :]
    is_rotated = (row < heads + kv_heads)[:, None]
    address = qkv + token * qkv_token + row[:, None] * qkv_row + column[None, :]
    loaded = tl.load(address, mask=is_element, other=0.0)
    rotation = tl.load(cos_sin + token * cos_sin_token + column, mask=is_column, other=0.0)
    norm_weight += row[:, None] * weight_row + column[None, :]
    is_weighted = is_element & is_rotated
    changed = encoded(loaded, rotation, norm_weight, eps, is_weighted, ROWS, DIM, WIDTH, HAS_NORM)
    result = tl.where(is_rotated, changed, loaded)
    tl.store(address, result, mask=is_element & (row < heads)[:, None])
    kv_row = tl.maximum(row - heads, 0).to(tl.int64)
    target = (kv_row // kv_heads) * pool_value + (kv_row % kv_heads) * pool_head
    target += tl.load(slots + token).to(tl.int64) * pool_slot
    tl.store(
        pool + target[:, None] + column[None, :],
        result.to(pool.dtype.element_ty),
        mask=is_element & (row >= heads)[:, None],
    )


def rotate_and_write(
    qkv: Tensor, norm: tuple[Tensor, float] | None, cos_sin: Tensor, kv: Tensor, slots: Tensor
) -> None:
    """As `FusedRows.rotate_and_write`, with the weight [heads + kv_heads, dim] and the eps of a
    norm of queries and keys."""
    num_tokens, num_rows, dim = qkv.shape
    kv_heads, real = kv.shape[1], torch.view_as_real(cos_sin)  # [tokens, 1, dim / 2, 2]
    weight, eps = norm or (qkv[0], 0.0)
    rows = min(power_of_two(num_rows), 8)
    Launch(num_warps=4, num_stages=1)(
        _rotate_and_write,
        (num_tokens, -(-num_rows // rows)),
        *(qkv, weight, real, kv, slots, eps, qkv.stride(0), qkv.stride(1), weight.stride(0)),
        *(real.stride(0), kv.stride(0), kv.stride(1), kv.stride(2)),
        *(num_rows - 2 * kv_heads, kv_heads),
        ROWS=rows,
        DIM=dim,
        WIDTH=power_of_two(dim),
        HAS_NORM=norm is not None,
    )
