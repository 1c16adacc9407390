"""Extend attention: chunked prefill over a cached prefix, and decode tokens over a shared prefix
(cascade attention); paged, with page size one.

A work item is a list of queries over a list of keys: the new tokens of a sequence over all its
keys, or the tokens of many sequences over a prefix that they share. Query heads of one key head are
rows of the same tile, so that a key is loaded once for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, is_upcast, power_of_two
from .softmax import online_softmax_step, store_result

ROWS, KEYS = 128, 64
FULL_ROWS, FULL_KEYS = 16, 32  # in float32, which has no tensor cores and twice the registers
FEW_ROWS = 16


@dataclass(frozen=True, slots=True)
class ExtendItems:
    """P lists of queries, each over a list of keys, cut into W tiles of queries; all int32.

    tile: queries of a tile. window: keys that a query sees at most, up to itself; 0: no limit.
    tokens: the queries of all items, as indices into the batch. slots: the keys of all items.
    token_firsts, slot_firsts: [P] where those of an item begin; num_tokens, num_keys: [P] how many.
    causal_len: [P] query i of an item sees its first num_keys - causal_len + i + 1 keys; 0: every
      query sees all.
    levels: [P] where in the output an item's results go.
    tile_items, tile_queries: [W] the item of each tile, and its first query there.
    """

    tile: int
    window: int
    tokens: Tensor
    slots: Tensor
    token_firsts: Tensor
    slot_firsts: Tensor
    num_tokens: Tensor
    num_keys: Tensor
    causal_len: Tensor
    levels: Tensor
    tile_items: Tensor
    tile_queries: Tensor


@triton.jit
def _attend_extend(
    q,
    kv,
    out,
    lse,
    tokens,
    slots,
    token_firsts,
    slot_firsts,
    num_tokens,
    num_keys,
    causal_len,
    levels,
    tile_items,
    tile_queries,
    scale,
    softcap,
    window,
    q_token,
    q_head,
    kv_value,
    kv_head,
    kv_slot,
    out_level,
    out_token,
    out_head,
    lse_level,
    lse_token,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    work, head = tl.program_id(0), tl.program_id(1)
    item = tl.load(tile_items + work)
    first = tl.load(tile_queries + work)
    count = tl.load(num_tokens + item)
    length = tl.load(num_keys + item)
    causal = tl.load(causal_len + item)
    level = tl.load(levels + item).to(tl.int64)
    slots += tl.load(slot_firsts + item)

    rows, columns, offsets = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    query = first + rows // HEADS  # [ROWS] in the item
    heads = head * GROUP + rows % HEADS
    is_row = (query < count) & (rows % HEADS < GROUP)
    is_column = columns < DIM
    is_element = is_row[:, None] & is_column[None, :]
    token = tl.load(tokens + tl.load(token_firsts + item) + query, mask=query < count, other=0)
    token = token.to(tl.int64)
    queries = tl.load(
        q + token[:, None] * q_token + heads[:, None] * q_head + columns[None, :],
        mask=is_element,
        other=0.0,
    )
    if IS_UPCAST:
        queries = queries.to(tl.float32)
    # How many keys each query sees; at most as many as the last query of the item.
    num_visible = tl.where(causal == 0, length, tl.minimum(length - causal + query + 1, length))
    last = tl.minimum(first + ROWS // HEADS, count) - 1
    stop = tl.where(causal == 0, length, tl.minimum(length - causal + last + 1, length))
    full = tl.where(causal == 0, length, tl.minimum(length - causal + first + 1, length))
    start, low = 0, 0
    if HAS_WINDOW:
        low = tl.maximum(full - window, 0)
        start = low // KEYS * KEYS
        full = start
    full = full // KEYS * KEYS

    row_max = tl.full([ROWS], -float("inf"), tl.float32)
    state = row_max, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
    head_kv = kv + head.to(tl.int64) * kv_head
    of_kv = head_kv, slots, columns, is_column, kv_value, kv_slot
    of_scores = scale, softcap
    for at in range(start, full, KEYS):
        position = at + offsets
        is_key = position < length
        state = online_softmax_step(
            queries, of_kv, position, is_key, is_key, of_scores, state, HAS_SOFTCAP, False
        )
    for at in range(full, stop, KEYS):
        position = at + offsets
        is_visible = position[None, :] < num_visible[:, None]
        if HAS_WINDOW:
            is_visible = is_visible & (position[None, :] >= num_visible[:, None] - window)
        is_key = (position >= low) & (position < stop)
        state = online_softmax_step(
            queries, of_kv, position, is_key, is_visible, of_scores, state, HAS_SOFTCAP, True
        )

    out += level * out_level + token[:, None] * out_token
    store_result(
        out + heads[:, None] * out_head + columns[None, :],
        lse + level * lse_level + token * lse_token + heads,
        state,
        is_element,
        is_row,
    )


def queries_per_tile(num_tokens: int, group: int, dtype: torch.dtype) -> int:
    """Queries in a tile for items of up to num_tokens queries, where `group` heads share keys."""
    heads = power_of_two(group)
    most = FULL_ROWS if dtype is torch.float32 else ROWS
    rows = min(max(power_of_two(num_tokens * heads), FEW_ROWS), most)
    return max(rows // heads, 1)


def attend_extend(
    q: Tensor,
    kv: Tensor,
    items: ExtendItems,
    out: Tensor,
    lse: Tensor,
    scale: float,
    softcap: float | None = None,
) -> None:
    """Write the attention output of each item: q [tokens, heads, dim] over kv [2, kv_heads,
    slots, dim] into out [levels, tokens, heads, dim], and the base-2 log-sum-exp of the scores into
    lse [levels, tokens, heads] (float32), each item into its own level."""
    num_heads, dim = q.shape[1:]
    num_kv_heads = kv.shape[1]
    group = num_heads // num_kv_heads
    heads = power_of_two(group)
    rows = max(items.tile * heads, FEW_ROWS)
    is_wide = rows * max(dim, 64) > 64 * 64 or q.dtype is torch.float32
    launch = Launch(num_warps=8 if is_wide else 4, num_stages=2)
    launch(
        _attend_extend,
        (len(items.tile_items), num_kv_heads),
        *(q, kv, out, lse, items.tokens, items.slots, items.token_firsts, items.slot_firsts),
        *(items.num_tokens, items.num_keys, items.causal_len, items.levels),
        *(items.tile_items, items.tile_queries, scale, softcap or 1.0, items.window),
        *(q.stride(0), q.stride(1), kv.stride(0), kv.stride(1), kv.stride(2)),
        *(out.stride(0), out.stride(1), out.stride(2), lse.stride(0), lse.stride(1)),
        GROUP=group,
        HEADS=heads,
        ROWS=rows,
        KEYS=FULL_KEYS if q.dtype is torch.float32 else KEYS,
        DIM=dim,
        WIDTH=max(16, power_of_two(dim)),
        HAS_SOFTCAP=softcap is not None,
        HAS_WINDOW=items.window > 0,
        IS_UPCAST=is_upcast(q),
    )
