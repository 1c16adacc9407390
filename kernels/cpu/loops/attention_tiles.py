"""What the extend attention loops share: tiles of queries, one query to a lane, and blocks of keys.
Needs numba."""

from __future__ import annotations

import numpy as np

from ..jit.attention_lanes import width
from ..jit.callees import callee
from ..jit.vectors import load, mask_range, spread, store, tanh, times

BLOCK = 64  # keys of a block
LOWEST = np.float32(-3e38)  # below all scores; -inf would give NaN where every key is masked
_LOG2 = np.float32(np.log(2))


@callee
def key_offsets(offsets, slots, at, end, base, dim):
    """Where the keys of a block begin; behind the last key, it is repeated."""
    for j in range(BLOCK):
        offsets[j] = (base + slots[min(at + j, end - 1)]) * dim


@callee
def longest(bounds, least, least_not):
    """Tokens of the longest sequence that is not skipped."""
    most = 0
    for s in range(len(bounds) - 1):
        num = bounds[s + 1] - bounds[s]
        if least <= num < least_not:
            most = max(most, num)
    return most


@callee
def visible_ranges(lows, highs, first, begin, end, window, of_tiles, like):
    """The range low:high of keys that each query sees."""
    (start, used, _, _, group), lanes = of_tiles, width(like)
    up_to, head = begin + start // group + 1, start % group
    for i in range((used + lanes - 1) // lanes * lanes):
        lows[i], highs[i] = max(first, up_to - window), min(end, up_to)
        head += 1
        if head == group and i + 1 < used:
            up_to, head = up_to + 1, 0


@callee
def finalize(row_max, row_sum, old_lse, is_merged):
    """From a query's row_max and row_sum: the log-sum-exp of its scores, merged with the old one if
    is_merged, and the factors of its acc and of the old output."""
    lse = (row_max + np.log2(row_sum)) * _LOG2
    scale, old_scale = np.float32(1) / row_sum, np.float32(0)
    if is_merged:
        old_scale = np.float32(1) / (np.float32(1) + np.exp(lse - old_lse))
        scale *= np.float32(1) - old_scale
        most = max(lse, old_lse)
        lse = most + np.log(np.exp(lse - most) + np.exp(old_lse - most))
    return lse, scale, old_scale


@callee
def apply_softcap(scores, num, cap, like):
    """cap * tanh(score / cap)."""
    bound, inverse = spread(np.float32(cap), like), spread(np.float32(1 / cap), like)
    lanes = width(like)
    for j in range(num):
        x = load(scores, j * lanes, bound)
        store(scores, j * lanes, times(bound, tanh(times(x, inverse))))


@callee
def mask_scores(scores, num, lows, highs, tile, start, like):
    """Set scores of the keys start:start + num to -inf where a query does not see the key."""
    low, high = load(lows, tile, like), load(highs, tile, like)
    lanes = width(like)
    for j in range(num):
        x = load(scores, j * lanes, low)
        store(scores, j * lanes, mask_range(x, low, high, np.float32(start + j)))
