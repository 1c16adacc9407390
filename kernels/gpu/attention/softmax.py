"""The running softmax of attention kernels: what a block of keys in any slots adds to it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fold(
    queries,
    keys_of_head,
    slots,
    place,
    is_key,
    is_seen,
    columns,
    is_column,
    scale,
    softcap,
    kv_part,
    kv_slot,
    highest,
    total,
    mixed,
    HAS_SOFTCAP: tl.constexpr,
    IS_MASKED: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    """One block of keys into the running softmax of queries [rows, width]: its new highest score,
    sum of weights and mixed values. Keys that are not `is_key` [block] are not read; where it
    IS_MASKED, a query sees those that are `is_seen` [rows or 1, block]."""
    slot = tl.load(slots + place, mask=is_key, other=0)
    address = keys_of_head + slot.to(tl.int64)[:, None] * kv_slot + columns[None, :]
    loaded = is_key[:, None] & is_column[None, :]
    keys = tl.load(address, mask=loaded, other=0.0)
    if IS_UPCAST:
        keys = keys.to(tl.float32)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
    if HAS_SOFTCAP:
        scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
    scores = scores * 1.4426950408889634
    if IS_MASKED:
        scores = tl.where(is_seen, scores, -float("inf"))
    higher = tl.maximum(highest, tl.max(scores, 1))
    level = tl.where(higher == -float("inf"), 0.0, higher)
    weights = tl.exp2(scores - level[:, None])
    shrink = tl.exp2(highest - level)
    values = tl.load(address + kv_part, mask=loaded, other=0.0)
    if IS_UPCAST:
        values = values.to(tl.float32)
    mixed = mixed * shrink[:, None] + tl.dot(
        weights.to(values.dtype), values, input_precision="ieee"
    )
    return higher, total * shrink + tl.sum(weights, 1), mixed
