"""Rotary position encoding: adjacent pairs (GPT-J style) rotated in place."""

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
