"""Online softmax of attention kernels: the step for one block of keys."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def online_softmax_step(
    queries,
    head_kv,
    slots,
    position,
    is_key,
    is_visible,
    columns,
    is_column,
    scale,
    softcap,
    kv_value,
    kv_slot,
    row_max,
    row_sum,
    acc,
    HAS_SOFTCAP: tl.constexpr,
    IS_MASKED: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    """Add a block of keys to the online softmax of queries [rows, width]; returns the new row_max,
    row_sum and acc. Keys that are not `is_key` [block] are not read; where it
    IS_MASKED, a query sees those that are `is_visible` [rows or 1, block]."""
    slot = tl.load(slots + position, mask=is_key, other=0)
    address = head_kv + slot.to(tl.int64)[:, None] * kv_slot + columns[None, :]
    is_element = is_key[:, None] & is_column[None, :]
    keys = tl.load(address, mask=is_element, other=0.0)
    if IS_UPCAST:
        keys = keys.to(tl.float32)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
    if HAS_SOFTCAP:
        scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
    scores = scores * 1.4426950408889634
    if IS_MASKED:
        scores = tl.where(is_visible, scores, -float("inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    finite_max = tl.where(new_max == -float("inf"), 0.0, new_max)
    weights = tl.exp2(scores - finite_max[:, None])
    rescale = tl.exp2(row_max - finite_max)
    values = tl.load(address + kv_value, mask=is_element, other=0.0)
    if IS_UPCAST:
        values = values.to(tl.float32)
    acc = acc * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return new_max, row_sum * rescale + tl.sum(weights, 1), acc
