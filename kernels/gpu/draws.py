"""Draws tokens from rows of logits: temperature, top-k, top-p, min-p, one launch, no sort.

A filter is a floor: the least weight that a token may have. Floors are found by halving the range
of their bits, which ascend as positive floats do, eight ways at a time; the random number is spent
by inverting the distribution in the order of token ids. All as in `core.model.sampling.sampler`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch

BLOCK = 2048
WAYS = 8
ROUNDS = 10  # of eight ways: 30 bits
ABOVE_ONE = 0x3F800001  # bits of the float after 1


@triton.jit
def _weights(row, at, size, highest, cold, BLOCK: tl.constexpr):
    """Probabilities of a block of tokens up to a factor; the likeliest token of the row has 1."""
    column = at + tl.arange(0, BLOCK)
    logits = tl.load(row + column, mask=column < size, other=-float("inf"))
    return tl.exp((logits - highest) / cold)


@triton.jit
def _floor(
    row,
    size,
    highest,
    cold,
    least,
    wanted,
    IS_COUNT: tl.constexpr,
    WAYS: tl.constexpr,
    ROUNDS: tl.constexpr,
    ABOVE_ONE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The highest floor, from `least` up, that keeps tokens of the wanted number or weight."""
    low = least.to(tl.int32, bitcast=True)
    high = tl.full([], ABOVE_ONE, tl.int32)
    way = tl.arange(0, WAYS)
    for _ in range(ROUNDS):
        width = tl.maximum((high - low + WAYS - 1) // WAYS, 1)
        pivots = tl.minimum(low + way * width, high)
        floors = pivots.to(tl.float32, bitcast=True)
        kept = tl.zeros([WAYS], tl.float64)
        for at in range(0, size, BLOCK):
            weights = _weights(row, at, size, highest, cold, BLOCK)
            is_kept = weights[None, :] >= floors[:, None]
            worth = tl.where(is_kept, 1.0 if IS_COUNT else weights[None, :], 0.0)
            kept += tl.sum(worth, 1).to(tl.float64)
        num_enough = tl.sum(((kept >= wanted) & (pivots < high)).to(tl.int32), 0)
        is_low_enough = num_enough > 0
        next_low = low + tl.maximum(num_enough - 1, 0) * width
        high = tl.where(is_low_enough, tl.minimum(next_low + width, high), high)
        low = tl.where(is_low_enough, next_low, low)
    return low.to(tl.float32, bitcast=True)


@triton.jit
def _draw(
    logits,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    numbers,
    out,
    logits_row,
    size,
    WAYS: tl.constexpr,
    ROUNDS: tl.constexpr,
    ABOVE_ONE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * logits_row
    highest = -float("inf")
    token = 0
    is_sound = True
    for at in range(0, size, BLOCK):
        column = at + tl.arange(0, BLOCK)
        values = tl.load(row + column, mask=column < size, other=-float("inf"))
        is_sound = is_sound & (tl.sum((values != values).to(tl.int32), 0) == 0)
        best = tl.max(values, 0)
        place = tl.argmax(values, 0)
        token = tl.where(best > highest, at + place, token)
        highest = tl.maximum(highest, best)
    is_sound = is_sound & (highest > -float("inf")) & (highest < float("inf"))
    cold = tl.load(temperatures + index)
    if is_sound & (cold > 0):
        top_k, top_p = tl.load(top_ks + index), tl.load(top_ps + index)
        floor = tl.zeros([], tl.float32)
        if (top_k > 0) & (top_k < size):
            wanted = top_k.to(tl.float64)
            floor = _floor(
                row, size, highest, cold, floor, wanted, True, WAYS, ROUNDS, ABOVE_ONE, BLOCK
            )
        if top_p < 1.0:
            whole = tl.zeros([], tl.float64)
            for at in range(0, size, BLOCK):
                weights = _weights(row, at, size, highest, cold, BLOCK)
                whole += tl.sum(tl.where(weights >= floor, weights, 0.0), 0).to(tl.float64)
            wanted = whole * top_p
            floor = _floor(
                row, size, highest, cold, floor, wanted, False, WAYS, ROUNDS, ABOVE_ONE, BLOCK
            )
        floor = tl.maximum(floor, tl.load(min_ps + index))
        whole = tl.zeros([], tl.float64)
        for at in range(0, size, BLOCK):
            weights = _weights(row, at, size, highest, cold, BLOCK)
            whole += tl.sum(tl.where(weights >= floor, weights, 0.0), 0).to(tl.float64)
        goal = whole * tl.load(numbers + index)
        so_far = tl.zeros([], tl.float64)
        is_found = False
        for at in range(0, size, BLOCK):
            weights = _weights(row, at, size, highest, cold, BLOCK)
            kept = tl.where(weights >= floor, weights, 0.0)
            mass = tl.sum(kept, 0).to(tl.float64)
            if (is_found == 0) & (mass > 0):
                here = (goal - so_far).to(tl.float32)
                place = tl.sum((tl.cumsum(kept, 0) <= here).to(tl.int32), 0)
                last = tl.max(tl.where(kept > 0, tl.arange(0, BLOCK), 0), 0)
                token = at + tl.minimum(place, last)
                is_found = so_far + mass > goal
            so_far += mass
    tl.store(out + index, tl.where(is_sound, token, -1))


def draw(
    logits: Tensor,
    temperatures: Tensor,
    top_ks: Tensor,
    top_ps: Tensor,
    min_ps: Tensor,
    numbers: Tensor,
) -> Tensor:
    """As `kernels.devices.DeviceSampler`."""
    out = torch.empty(len(logits), dtype=torch.int32, device=logits.device)
    Launch(num_warps=8, num_stages=1)(
        _draw,
        (len(logits),),
        *(logits, temperatures, top_ks, top_ps, min_ps, numbers, out),
        *(logits.stride(0), logits.shape[1]),
        WAYS=WAYS,
        ROUNDS=ROUNDS,
        ABOVE_ONE=ABOVE_ONE,
        BLOCK=BLOCK,
    )
    return out
