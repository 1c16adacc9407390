"""Samples tokens from rows of logits: temperature, top-k, top-p, min-p, in one launch, no sort.

Each filter is a minimum weight of tokens. It is found by a search over the bits of positive floats,
which sort as the floats do, eight ways at a time. A token is chosen by inverting the cumulative
distribution, in the order of token ids. All as in `core.model.sampling.sampler`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch

BLOCK = 2048
WAYS = tl.constexpr(8)
ROUNDS = tl.constexpr(10)  # of eight ways: 30 bits
ABOVE_ONE = tl.constexpr(0x3F800001)  # bits of the float after 1


@triton.jit
def _weights(row, at, size, row_max, temperature, BLOCK: tl.constexpr):
    """Probabilities of a block of tokens up to a factor; the likeliest token of the row has 1."""
    column = at + tl.arange(0, BLOCK)
    logits = tl.load(row + column, mask=column < size, other=-float("inf"))
    return tl.exp((logits - row_max) / temperature)


@triton.jit
def _mass_above(row, size, row_max, temperature, min_weight, BLOCK: tl.constexpr):
    """The sum of the weights that are not below a least one."""
    total = tl.zeros([], tl.float64)
    for at in range(0, size, BLOCK):
        weights = _weights(row, at, size, row_max, temperature, BLOCK)
        total += tl.sum(tl.where(weights >= min_weight, weights, 0.0), 0).to(tl.float64)
    return total


@triton.jit
def _min_weight(
    row, size, row_max, temperature, least, target, IS_COUNT: tl.constexpr, BLOCK: tl.constexpr
):
    """The highest floor, from `least` up, that keeps tokens of the wanted number or weight."""
    low = least.to(tl.int32, bitcast=True)
    high = tl.full([], ABOVE_ONE, tl.int32)
    way = tl.arange(0, WAYS)
    for _ in range(ROUNDS):
        width = tl.maximum((high - low + WAYS - 1) // WAYS, 1)
        pivots = tl.minimum(low + way * width, high)
        thresholds = pivots.to(tl.float32, bitcast=True)
        kept = tl.zeros([WAYS], tl.float64)
        for at in range(0, size, BLOCK):
            weights = _weights(row, at, size, row_max, temperature, BLOCK)
            is_kept = weights[None, :] >= thresholds[:, None]
            kept_mass = tl.where(is_kept, 1.0 if IS_COUNT else weights[None, :], 0.0)
            kept += tl.sum(kept_mass, 1).to(tl.float64)
        num_enough = tl.sum(((kept >= target) & (pivots < high)).to(tl.int32), 0)
        is_low_enough = num_enough > 0
        next_low = low + tl.maximum(num_enough - 1, 0) * width
        high = tl.where(is_low_enough, tl.minimum(next_low + width, high), high)
        low = tl.where(is_low_enough, next_low, low)
    return low.to(tl.float32, bitcast=True)


@triton.jit
def _sample_tokens(
    logits,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    numbers,
    out,
    logits_row,
    size,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * logits_row
    row_max = -float("inf")
    token = 0
    is_sound = True
    for at in range(0, size, BLOCK):
        column = at + tl.arange(0, BLOCK)
        values = tl.load(row + column, mask=column < size, other=-float("inf"))
        is_sound = is_sound & (tl.sum((values != values).to(tl.int32), 0) == 0)
        best = tl.max(values, 0)
        offset = tl.argmax(values, 0)
        token = tl.where(best > row_max, at + offset, token)
        row_max = tl.maximum(row_max, best)
    is_sound = is_sound & (row_max > -float("inf")) & (row_max < float("inf"))
    temperature = tl.load(temperatures + index)
    if is_sound & (temperature > 0):
        top_k, top_p = tl.load(top_ks + index), tl.load(top_ps + index)
        min_weight = tl.zeros([], tl.float32)
        if (top_k > 0) & (top_k < size):
            wanted = top_k.to(tl.float64)
            min_weight = _min_weight(
                row, size, row_max, temperature, min_weight, wanted, True, BLOCK
            )
        if top_p < 1.0:
            wanted = _mass_above(row, size, row_max, temperature, min_weight, BLOCK) * top_p
            min_weight = _min_weight(
                row, size, row_max, temperature, min_weight, wanted, False, BLOCK
            )
        min_weight = tl.maximum(min_weight, tl.load(min_ps + index))
        total_mass = _mass_above(row, size, row_max, temperature, min_weight, BLOCK)
        target = total_mass * tl.load(numbers + index)
        cumulative = tl.zeros([], tl.float64)
        is_found = False
        for at in range(0, size, BLOCK):
            weights = _weights(row, at, size, row_max, temperature, BLOCK)
            kept = tl.where(weights >= min_weight, weights, 0.0)
            mass = tl.sum(kept, 0).to(tl.float64)
            if (is_found == 0) & (mass > 0):
                remaining = (target - cumulative).to(tl.float32)
                offset = tl.sum((tl.cumsum(kept, 0) <= remaining).to(tl.int32), 0)
                last = tl.max(tl.where(kept > 0, tl.arange(0, BLOCK), 0), 0)
                token = at + tl.minimum(offset, last)
                is_found = cumulative + mass > target
            cumulative += mass
    tl.store(out + index, tl.where(is_sound, token, -1))


def sample_tokens(
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
        _sample_tokens,
        (len(logits),),
        *(logits, temperatures, top_ks, top_ps, min_ps, numbers, out),
        *(logits.stride(0), logits.shape[1]),
        BLOCK=BLOCK,
    )
    return out
