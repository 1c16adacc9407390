"""Rotary position encoding: pairs of neighbours turned in place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, power_of_two


@triton.jit
def _turn(
    x,
    angles,
    x_token,
    x_head,
    angles_token,
    heads,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pair = tl.arange(0, WIDTH)
    is_pair = pair < PAIRS
    here = (head < heads)[:, None] & is_pair[None, :]
    turn = angles + token * angles_token + 2 * pair
    cosine = tl.load(turn, mask=is_pair, other=0.0)[None, :]
    sine = tl.load(turn + 1, mask=is_pair, other=0.0)[None, :]
    place = x + token * x_token + head[:, None] * x_head + 2 * pair[None, :]
    first = tl.load(place, mask=here, other=0.0).to(tl.float32)
    second = tl.load(place + 1, mask=here, other=0.0).to(tl.float32)
    turned = first * cosine - second * sine
    tl.store(place, turned.to(x.dtype.element_ty), mask=here)
    turned = first * sine + second * cosine
    tl.store(place + 1, turned.to(x.dtype.element_ty), mask=here)


def turn(x: Tensor, angles: Tensor) -> None:
    """Turn the pairs (0, 1), (2, 3), ... of x [tokens, heads, dim] in place by complex numbers,
    angles [tokens, 1, dim / 2]."""
    num_tokens, num_heads, dim = x.shape
    real = torch.view_as_real(angles)  # [tokens, 1, dim / 2, 2]
    heads = min(power_of_two(num_heads), 8)
    Launch(num_warps=4, num_stages=1)(
        _turn,
        (num_tokens, -(-num_heads // heads)),
        *(x, real, x.stride(0), x.stride(1), real.stride(0), num_heads),
        HEADS=heads,
        PAIRS=dim // 2,
        WIDTH=power_of_two(dim // 2),
    )
