"""Online softmax of attention kernels: the step for one block of keys, and its result."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def online_softmax_step(
    queries,
    of_kv,
    position,
    is_key,
    is_visible,
    of_scores,
    state,
    HAS_SOFTCAP: tl.constexpr,
    IS_MASKED: tl.constexpr,
):
    """Add a block of keys to the online softmax of queries [rows, width]: state is its row_max,
    row_sum and acc, and so is what this returns. Keys that are not `is_key` [block] are not read;
    where it IS_MASKED, a query sees those that are `is_visible` [rows or 1, block].

    of_kv: the keys of a head, the slots of all positions, columns of a key, which of these there
    are, and strides of values and slots. of_scores: scale and softcap.
    """
    head_kv, slots, columns, is_column, kv_value, kv_slot = of_kv
    scale, softcap = of_scores
    row_max, row_sum, acc = state
    slot = tl.load(slots + position, mask=is_key, other=0)
    address = head_kv + slot.to(tl.int64)[:, None] * kv_slot + columns[None, :]
    is_element = is_key[:, None] & is_column[None, :]
    keys = tl.load(address, mask=is_element, other=0.0).to(queries.dtype)
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
    values = tl.load(address + kv_value, mask=is_element, other=0.0).to(queries.dtype)
    acc = acc * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return new_max, row_sum * rescale + tl.sum(weights, 1), acc


@triton.jit
def normalized(state):
    """What the online softmax comes to: the weighted mean of the values [rows, width], and the
    base-2 log-sum-exps of the scores [rows]; -inf for a query that saw no key."""
    row_max, row_sum, acc = state
    is_empty = row_sum == 0.0
    total = tl.where(is_empty, 1.0, row_sum)
    lse = tl.where(is_empty, -float("inf"), row_max + tl.log2(total))
    return acc / total[:, None], lse
