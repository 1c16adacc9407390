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

from ..launch import is_upcast, power_of_two, shared_memory
from .softmax import normalized, online_softmax_step
from .tiles import MIN_ROWS, extend_tile, most_rows, padded


@dataclass(frozen=True, slots=True)
class ExtendItems:
    """P work items of queries over keys, cut into W tiles of queries; all int32.

    tile: queries of a tile. window: keys that a query sees at most, up to itself; 0: no limit.
    has_partials: whether any results are partial ones.
    slots: [rows, columns] the slot table.
    tokens: the queries of all items, as indices into the batch.
    items: [P, 7]: an item's first query in `tokens` and how many; row of the slot table, first
      position and number of its keys; causal_len: query i sees the first keys - causal_len + i + 1
      keys, or all where it is 0; level: which of a token's partial results its result is, or -1
      where it is all of the token's.
    tiles: [W, 2]: the item of each tile, and its first query there.
    """

    tile: int
    window: int
    has_partials: bool
    slots: Tensor
    tokens: Tensor
    items: Tensor
    tiles: Tensor


@triton.jit
def _attend_extend(
    q,
    kv,
    out,
    partials,
    lse,
    tokens,
    items,
    tiles,
    slots,
    merges,
    scale,
    softcap,
    window,
    q_token,
    q_head,
    kv_value,
    kv_head,
    kv_slot,
    out_token,
    out_head,
    partials_index,
    partials_head,
    lse_index,
    slots_row,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_PARTIALS: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    work, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles + 2 * work + 1) + tl.program_id(2) * (ROWS // HEADS)
    items += tl.load(tiles + 2 * work) * 7
    count = tl.load(items + 1)
    if first >= count:
        return
    length, causal = tl.load(items + 4), tl.load(items + 5)
    slots += tl.load(items + 2).to(tl.int64) * slots_row + tl.load(items + 3)

    rows, columns, offsets = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    query = first + rows // HEADS  # [ROWS] in the item
    heads = head * GROUP + rows % HEADS
    is_row = (query < count) & (rows % HEADS < GROUP)
    is_column = columns < DIM
    is_element = is_row[:, None] & is_column[None, :]
    token = tl.load(tokens + tl.load(items) + query, mask=query < count, other=0).to(tl.int64)
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

    result, result_lse = normalized(state)
    level = -1
    if HAS_PARTIALS:
        level = tl.load(items + 6)
    if level < 0:
        address = out + token[:, None] * out_token + heads[:, None] * out_head + columns[None, :]
        tl.store(address, result.to(out.dtype.element_ty), mask=is_element)
    else:
        index = (tl.load(merges + 2 * token, mask=query < count, other=0) + level).to(tl.int64)
        element = index[:, None] * partials_index + heads[:, None] * partials_head
        tl.store(partials + element + columns[None, :], result, mask=is_element)
        tl.store(lse + index * lse_index + heads, result_lse, mask=is_row)


def queries_per_tile(num_tokens: int, group: int, dtype: torch.dtype) -> int:
    """Queries in a tile for items of up to num_tokens queries, where `group` heads share keys."""
    heads = power_of_two(group)
    rows = min(max(power_of_two(num_tokens * heads), MIN_ROWS), most_rows(dtype))
    return max(rows // heads, 1)


def attend_extend(
    q: Tensor,
    kv: Tensor,
    items: ExtendItems,
    out: Tensor,
    partials: Tensor,
    lse: Tensor,
    merges: Tensor,
    scale: float,
    softcap: float | None = None,
) -> None:
    """Write the attention output of each item: q [tokens, heads, dim] over kv [2, kv_heads, slots,
    dim] into out [tokens, heads, dim], or where several items share a token's keys into partials
    [n, heads, dim] and the base-2 log-sum-exps of the scores into lse [n, heads] (both float32), at
    the token's place by merges [tokens, 2], as in `merge`."""
    num_heads, dim = q.shape[1:]
    num_kv_heads = kv.shape[1]
    group = num_heads // num_kv_heads
    heads = power_of_two(group)
    rows = max(items.tile * heads, MIN_ROWS)
    tile = extend_tile(q.dtype, dim, group, rows, shared_memory(q.device))
    tile.launch(
        _attend_extend,
        (len(items.tiles), num_kv_heads, -(-rows // tile.rows)),
        *(q, kv, out, partials, lse, items.tokens, items.items, items.tiles, items.slots),
        *(merges, scale, softcap or 1.0, items.window),
        *(q.stride(0), q.stride(1), kv.stride(0), kv.stride(1), kv.stride(2)),
        *(out.stride(0), out.stride(1), partials.stride(0), partials.stride(1)),
        *(lse.stride(0), items.slots.stride(0)),
        GROUP=group,
        HEADS=heads,
        ROWS=tile.rows,
        KEYS=tile.keys,
        DIM=dim,
        WIDTH=padded(dim),
        HAS_SOFTCAP=softcap is not None,
        HAS_WINDOW=items.window > 0,
        HAS_PARTIALS=items.has_partials,
        IS_UPCAST=is_upcast(q),
    )
