"""Samples tokens from rows of logits: temperature, top-k, top-p, min-p, without a sort.

One pass over the vocabulary, by several programs a row, gives the largest logit and the mass of
each group of tokens. They bound the least weight that a filter keeps, so that only groups with a
token above the bound are read again. In these, a filter is the highest floor of weights that keeps
enough: it is found by a search over the bits of positive floats, which sort as the floats do, first
among the weights in memory until few are left, then among those in registers. A token is chosen by
inverting the cumulative distribution in the order of token ids. The same tokens as of
`core.model.sampling.sampler`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, power_of_two

GROUP = 128  # tokens of a group, at least
MAX_GROUPS = 2048  # of a row
READ_AT_ONCE = 2048  # tokens
GROUPS_SUMMARIZED = tl.constexpr(32)
ROOM, FEW = tl.constexpr(2048), tl.constexpr(256)  # weights that are searched in registers
WAYS = tl.constexpr(8)
ROUNDS, FEW_ROUNDS = tl.constexpr(10), tl.constexpr(5)  # of eight ways: 30 bits, and 15 for a bound
ABOVE_ONE = tl.constexpr(0x3F800001)  # bits of the float after 1
MARGIN = tl.constexpr(1.00001)  # of a mass that rounding may have enlarged


@triton.jit
def _summarize(
    logits,
    temperatures,
    maxima,
    masses,
    logits_row,
    scratch_row,
    size,
    num_groups,
    GROUP: tl.constexpr,
):
    """The largest logit of each group of tokens, infinity where one is NaN; and, unless the row is
    greedy, the mass of the group: the sum of its weights, of which the largest is 1."""
    index = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS_SUMMARIZED + tl.arange(0, GROUPS_SUMMARIZED)
    column = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    values = tl.load(logits + index * logits_row + column, mask=column < size, other=-float("inf"))
    has_nan = tl.sum((values != values).to(tl.int32), 1) > 0
    best = tl.where(has_nan, float("inf"), tl.max(values, 1))
    is_group = group < num_groups
    tl.store(maxima + index * scratch_row + group, best, mask=is_group)
    temperature = tl.load(temperatures + index)
    if temperature > 0:
        is_finite = (best > -float("inf")) & (best < float("inf"))
        values = tl.where(is_finite[:, None], values - tl.where(is_finite, best, 0.0)[:, None], 0.0)
        mass = tl.where(is_finite, tl.sum(tl.exp(values / temperature), 1), 0.0)
        tl.store(masses + index * scratch_row + group, mass, mask=is_group)


@triton.jit
def _weights(row, listed, at, num_listed, of_row, GROUP: tl.constexpr, READ: tl.constexpr):
    """Weights [READ, GROUP] of the listed groups from `at` on: probabilities up to a factor; the
    likeliest token of the row has 1. of_row: vocabulary size, largest logit and temperature."""
    size, row_max, temperature = of_row
    place = at + tl.arange(0, READ)
    group = tl.load(listed + place, mask=place < num_listed, other=0)
    column = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    is_token = (place < num_listed)[:, None] & (column < size)
    values = tl.load(row + column, mask=is_token, other=-float("inf"))
    return tl.exp((values - row_max) / temperature)


@triton.jit
def _next_bracket(low, high, kept, target):
    """Of the pivots between low and high, those around the highest that keeps the target: low, high
    and the index of high. kept: [WAYS] what each pivot keeps. Where even low keeps too little, the
    bracket is low alone."""
    width = tl.maximum((high - low + WAYS - 1) // WAYS, 1)
    pivots = tl.minimum(low + tl.arange(0, WAYS) * width, high)
    num_enough = tl.sum(((kept >= target) & (pivots < high)).to(tl.int32), 0)
    next_low = low + tl.maximum(num_enough - 1, 0) * width
    next_high = tl.where(num_enough > 0, tl.minimum(next_low + width, high), low + 1)
    return next_low, next_high, num_enough


@triton.jit
def _pivots(low, high):
    """[WAYS] thresholds from low up, and high where there are fewer."""
    width = tl.maximum((high - low + WAYS - 1) // WAYS, 1)
    return tl.minimum(low + tl.arange(0, WAYS) * width, high).to(tl.float32, bitcast=True)


@triton.jit
def _highest_floor(values, masses, low, high, target, SLACK: tl.constexpr, ROUNDS: tl.constexpr):
    """Bits of the highest floor from low to before high, such that values [n] that are not below it
    have the target's mass, or some floor near below it after few rounds; low if there is none. Of
    each value counts its own mass, less SLACK times the floor, but at least the value."""
    for _ in range(ROUNDS):
        thresholds = _pivots(low, high)[:, None]
        counted = tl.maximum(masses[None, :] - SLACK * thresholds, values[None, :])
        kept = tl.sum(tl.where(values[None, :] >= thresholds, counted, 0.0), 1).to(tl.float64)
        low, high, _num_enough = _next_bracket(low, high, kept, target)
    return low


@triton.jit
def _gather(
    row, listed, num_listed, of_row, low, high, room, GROUP: tl.constexpr, READ: tl.constexpr
):
    """Put the weights in [low, high) of listed groups into `room`; how many there are, or some
    number above ROOM where there are more."""
    low_weight, high_weight = low.to(tl.float32, bitcast=True), high.to(tl.float32, bitcast=True)
    count = low * 0
    at = low * 0
    tl.debug_barrier()  # what was in the room is read
    while (at < num_listed) & (count <= ROOM):
        weights = _weights(row, listed, at, num_listed, of_row, GROUP, READ)
        weights = tl.reshape(weights, [READ * GROUP])
        is_inside = (weights >= low_weight) & (weights < high_weight) & (weights > 0)
        ones = is_inside.to(tl.int32)
        place = count + tl.cumsum(ones, 0) - 1
        tl.store(room + place, weights, mask=is_inside & (place < ROOM))
        count += tl.sum(ones, 0)
        at += READ
    tl.debug_barrier()
    return count


@triton.jit
def _floor_in(room, count, low, high, target, IS_COUNT: tl.constexpr, SIZE: tl.constexpr):
    """As `_highest_floor`, of the `count` weights in a room, at most SIZE."""
    place = tl.arange(0, SIZE)
    weights = tl.load(room + place, mask=place < count, other=0.0)
    masses = tl.full([SIZE], 1.0, tl.float32) if IS_COUNT else weights
    return _highest_floor(weights, masses, low, high, target, 0.0, ROUNDS)


@triton.jit
def _floor(
    row,
    listed,
    num_listed,
    of_row,
    least,
    target,
    room,
    IS_COUNT: tl.constexpr,
    GROUP: tl.constexpr,
    READ: tl.constexpr,
):
    """The highest floor, from `least` up, that keeps tokens of the wanted number or mass; `least`
    if there is none."""
    low, high = least.to(tl.int32, bitcast=True), tl.full([], ABOVE_ONE, tl.int32)
    above, num_above = target * 0, low * 0  # what high keeps
    count = _gather(row, listed, num_listed, of_row, low, high, room, GROUP, READ)
    way = tl.arange(0, WAYS)
    while (count > ROOM) & (high - low > 1):
        thresholds = _pivots(low, high)[:, None, None]
        masses = tl.zeros([WAYS, READ], tl.float64)
        numbers = tl.zeros([WAYS, READ], tl.int32)
        at = low * 0
        while at < num_listed:
            weights = _weights(row, listed, at, num_listed, of_row, GROUP, READ)[None, :, :]
            is_kept = (weights >= thresholds) & (weights > 0)
            numbers += tl.sum(is_kept.to(tl.int32), 2)
            masses += tl.sum(tl.where(is_kept, weights, 0.0), 2).to(tl.float64)
            at += READ
        number = tl.sum(numbers, 1)
        kept = number.to(tl.float64) if IS_COUNT else tl.sum(masses, 1)
        low, high, num_enough = _next_bracket(low, high, kept, target)
        is_new = num_enough < WAYS
        above = tl.where(is_new, tl.sum(tl.where(way == num_enough, kept, 0.0), 0), above)
        num_new = tl.sum(tl.where(way == num_enough, number, 0), 0)
        num_above = tl.where(is_new, num_new, num_above)
        count = tl.sum(tl.where(way == num_enough - 1, number, 0), 0) - num_above
        if count <= ROOM:
            count = _gather(row, listed, num_listed, of_row, low, high, room, GROUP, READ)
    if count <= FEW:
        low = _floor_in(room, count, low, high, target - above, IS_COUNT, FEW)
    elif count <= ROOM:
        low = _floor_in(room, count, low, high, target - above, IS_COUNT, ROOM)
    return low.to(tl.float32, bitcast=True)


@triton.jit
def _group_masses_from(
    row, listed, num_listed, of_row, floor, out, GROUP: tl.constexpr, READ: tl.constexpr
):
    """Write into `out` the mass of the weights of each listed group that are not below a floor;
    their number."""
    numbers = tl.zeros([READ], tl.int32)
    tl.debug_barrier()  # what was in `out` is read
    for at in range(0, num_listed, READ):
        weights = _weights(row, listed, at, num_listed, of_row, GROUP, READ)
        is_kept = (weights >= floor) & (weights > 0)
        place = at + tl.arange(0, READ)
        mass = tl.sum(tl.where(is_kept, weights, 0.0), 1)
        tl.store(out + place, mass, mask=place < num_listed)
        numbers += tl.sum(is_kept.to(tl.int32), 1)
    tl.debug_barrier()
    return tl.sum(numbers, 0)


@triton.jit
def _first_above(masses, goal, SIZE: tl.constexpr):
    """Where the running sum of masses [SIZE] passes the goal, at most the last place where it
    grows; and the sum before that."""
    masses = masses.to(tl.float64)
    sums = tl.cumsum(masses, 0)
    last = tl.sum((sums < tl.max(sums, 0)).to(tl.int32), 0)
    chosen = tl.minimum(tl.sum((sums <= goal).to(tl.int32), 0), last)
    return chosen, tl.sum(tl.where(tl.arange(0, SIZE) < chosen, masses, 0.0), 0)


@triton.jit
def _choose(
    logits,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    numbers,
    out,
    maxima,
    masses,
    listed,
    room,
    logits_row,
    scratch_row,
    size,
    num_groups,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    READ: tl.constexpr,
):
    """The token of a row, from what `_summarize` wrote. listed, room: for numbers on the way."""
    index = tl.program_id(0).to(tl.int64)
    row, scratch = logits + index * logits_row, index * scratch_row
    maxima, masses = maxima + scratch, masses + scratch
    listed, room = listed + scratch, room + scratch
    group, offset = tl.arange(0, GROUPS), tl.arange(0, GROUP)
    best = tl.load(maxima + group, mask=group < num_groups, other=-float("inf"))
    row_max = tl.max(best, 0)
    temperature = tl.load(temperatures + index)
    token = -1
    if (row_max > -float("inf")) & (row_max < float("inf")):
        if temperature > 0:
            peaks = tl.exp((best - row_max) / temperature)
            group_masses = tl.load(masses + group, mask=group < num_groups, other=0.0) * peaks
            whole = tl.sum(group_masses.to(tl.float64), 0)
            top_k, top_p = tl.load(top_ks + index), tl.load(top_ps + index)
            least = tl.load(min_ps + index)
            is_top_k = (top_k > 0) & (top_k < size)
            is_filtered = is_top_k | (top_p < 1.0) | (least > 0)
            if is_filtered:
                of_row = size, row_max, temperature
                low, high = tl.zeros([], tl.int32), tl.full([], ABOVE_ONE, tl.int32)
                if is_top_k:  # as many groups have a token that is not below the bound
                    ones = tl.full([GROUPS], 1.0, tl.float32)
                    wanted = top_k.to(tl.float64)
                    low = _highest_floor(peaks, ones, low, high, wanted, 0.0, FEW_ROUNDS)
                elif top_p < 1.0:  # a group has its mass, less what may be below the bound
                    wanted = whole * top_p * MARGIN
                    low = _highest_floor(
                        peaks, group_masses, low, high, wanted, GROUP - 1.0, FEW_ROUNDS
                    )
                bound = low.to(tl.float32, bitcast=True)
                bound = tl.where(is_top_k, bound, tl.maximum(bound, least))
                is_listed = (peaks >= bound) & (peaks > 0)
                place = tl.cumsum(is_listed.to(tl.int32), 0) - 1
                num_listed = tl.sum(is_listed.to(tl.int32), 0)
                tl.store(listed + place, group, mask=is_listed)
                tl.debug_barrier()
                floor = bound
                if is_top_k:
                    wanted = top_k.to(tl.float64)
                    floor = _floor(
                        row, listed, num_listed, of_row, floor, wanted, room, True, GROUP, READ
                    )
                if top_p < 1.0:
                    if is_top_k:  # tokens as likely as the last one of top-k add no mass
                        number = _group_masses_from(
                            row, listed, num_listed, of_row, floor, masses, GROUP, READ
                        )
                        kept = tl.load(masses + group, mask=group < num_listed, other=0.0)
                        ties = tl.maximum(number - top_k, 0).to(tl.float64)
                        whole = tl.sum(kept.to(tl.float64), 0) - ties * floor
                    wanted = whole * top_p
                    floor = _floor(
                        row, listed, num_listed, of_row, floor, wanted, room, False, GROUP, READ
                    )
                least = tl.maximum(floor, least)
                _group_masses_from(row, listed, num_listed, of_row, least, masses, GROUP, READ)
                group_masses = tl.load(masses + group, mask=group < num_listed, other=0.0)
                whole = tl.sum(group_masses.to(tl.float64), 0)
            goal = whole * tl.load(numbers + index)
            chosen, before = _first_above(group_masses, goal, GROUPS)
            if is_filtered:
                chosen = tl.load(listed + chosen)
            column = chosen * GROUP + offset
            values = tl.load(row + column, mask=column < size, other=-float("inf"))
            weights = tl.exp((values - row_max) / temperature)
            weights = tl.where(weights >= least, weights, 0.0)
            within, _before = _first_above(weights, goal - before, GROUP)
            token = chosen * GROUP + within
        else:
            chosen = tl.min(tl.where(best == row_max, group, GROUPS), 0)
            column = chosen * GROUP + offset
            values = tl.load(row + column, mask=column < size, other=-float("inf"))
            token = chosen * GROUP + tl.min(tl.where(values == row_max, offset, GROUP), 0)
    tl.store(out + index, token)


def sample_tokens(
    logits: Tensor,
    temperatures: Tensor,
    top_ks: Tensor,
    top_ps: Tensor,
    min_ps: Tensor,
    numbers: Tensor,
) -> Tensor:
    """As `kernels.devices.DeviceSampler`."""
    num_rows, size = logits.shape
    group = max(GROUP, power_of_two(-(-size // MAX_GROUPS)))
    num_groups = -(-size // group)
    out = torch.empty(num_rows, dtype=torch.int32, device=logits.device)
    scratch = torch.empty(num_rows, 3 * num_groups + ROOM.value, device=logits.device)
    parts = scratch.split([num_groups, num_groups, num_groups, ROOM.value], dim=1)
    maxima, masses, listed, room = parts
    strides = logits.stride(0), scratch.stride(0)
    Launch(num_warps=4, num_stages=1)(
        _summarize,
        (num_rows, -(-num_groups // GROUPS_SUMMARIZED.value)),
        *(logits, temperatures, maxima, masses, *strides, size, num_groups),
        GROUP=group,
    )
    Launch(num_warps=8, num_stages=1)(
        _choose,
        (num_rows,),
        *(logits, temperatures, top_ks, top_ps, min_ps, numbers, out),
        *(maxima, masses, listed.view(torch.int32), room, *strides, size, num_groups),
        GROUP=group,
        GROUPS=power_of_two(num_groups),
        READ=max(READ_AT_ONCE // group, 1),
    )
    return out
