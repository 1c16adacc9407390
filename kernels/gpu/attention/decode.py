"""Decode attention: one new token of each sequence over its paged keys, page size one.

The keys of a long sequence are split over several programs (flash decoding, split-KV), each for all
query heads of one key head; grouped queries are rows of one small matrix. `merge` merges what these
find.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from ..launch import is_upcast, shared_memory
from ..rotary import encoded
from .softmax import normalized, online_softmax_step
from .tiles import MAX_KEYS, decode_tile, padded

KEYS = MAX_KEYS


@dataclass(frozen=True, slots=True)
class DecodeItems:
    """W work items of decode tokens, of which each reads some of a token's keys.

    items: [W, 5] int32: the token's index in the batch; row of the slot table; first position and
      end of the keys, none of which does nothing; where the result goes: a partial result, or -1
      where it is all of the token's.
    slots: [rows, columns] the slot table.
    """

    items: Tensor
    slots: Tensor


@dataclass(frozen=True, slots=True)
class NewKeys:
    """Keys and values that are not in the pool yet, and what queries and keys become on the way.

    norm: weight [heads + kv_heads, dim] and eps of theirs. cos_sin: [tokens, 1, dim / 2, 2]
    rotations. slots: [tokens] where keys and values go.
    """

    norm: tuple[Tensor, float] | None
    cos_sin: Tensor
    slots: Tensor


@triton.jit
def _attend_decode(
    q,
    kv,
    out,
    partials,
    lse,
    items,
    slots,
    cos_sin,
    norm_weight,
    new_slots,
    scale,
    softcap,
    eps,
    num_heads,
    cos_sin_token,
    weight_head,
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
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    IS_NEW: tl.constexpr,
    HAS_NORM: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    item, head = tl.program_id(0), tl.program_id(1)
    items += item * 5
    token, row = tl.load(items).to(tl.int64), tl.load(items + 1).to(tl.int64)
    start, stop, target = tl.load(items + 2), tl.load(items + 3), tl.load(items + 4).to(tl.int64)
    if start >= stop:
        return

    rows, columns, offsets = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    is_row, is_column = rows < GROUP, columns < DIM
    heads = head * GROUP + rows
    is_element = is_row[:, None] & is_column[None, :]
    queries = tl.load(
        q + token * q_token + heads[:, None] * q_head + columns[None, :], mask=is_element, other=0.0
    )
    kv += head.to(tl.int64) * kv_head
    slots += row * slots_row
    if IS_NEW:
        rotation = tl.load(cos_sin + token * cos_sin_token + columns, mask=is_column, other=0.0)
        norm_weight += columns[None, :]
        query_norm = norm_weight + heads[:, None] * weight_head
        queries = encoded(
            queries, rotation, query_norm, eps, is_element, ROWS, DIM, WIDTH, HAS_NORM
        )
        slot = tl.load(new_slots + token).to(tl.int64)
        if tl.load(slots + stop - 1) == slot:  # the token's own key comes last
            is_number = is_column[None, :]
            key_head = num_heads + head
            key_address = q + token * q_token + key_head * q_head + columns[None, :]
            key = tl.load(key_address, mask=is_number, other=0.0)
            value_address = key_address + tl.num_programs(1) * q_head
            value = tl.load(value_address, mask=is_number, other=0.0)
            key_norm = norm_weight + key_head * weight_head
            key = encoded(key, rotation, key_norm, eps, is_number, 1, DIM, WIDTH, HAS_NORM)
            written = kv + slot * kv_slot + columns[None, :]
            tl.store(written, key.to(kv.dtype.element_ty), mask=is_number)
            tl.store(written + kv_value, value.to(kv.dtype.element_ty), mask=is_number)
            tl.debug_barrier()  # before all of the program read them
    if IS_UPCAST:
        queries = queries.to(tl.float32)
    row_max = tl.full([ROWS], -float("inf"), tl.float32)
    state = row_max, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
    of_kv = kv, slots, columns, is_column, kv_value, kv_slot
    of_scores = scale, softcap
    for at in range(start, stop, KEYS):
        position = at + offsets
        is_key = position < stop
        state = online_softmax_step(
            queries, of_kv, position, is_key, is_key[None, :], of_scores, state, HAS_SOFTCAP, True
        )
    result, result_lse = normalized(state)
    if target < 0:
        address = out + token * out_token + heads[:, None] * out_head + columns[None, :]
        tl.store(address, result.to(out.dtype.element_ty), mask=is_element)
    else:
        first = partials + target * partials_index
        tl.store(first + heads[:, None] * partials_head + columns[None, :], result, mask=is_element)
        tl.store(lse + target * lse_index + heads, result_lse, mask=is_row)


def attend_decode(
    q: Tensor,
    kv: Tensor,
    decodes: DecodeItems,
    out: Tensor,
    partials: Tensor,
    lse: Tensor,
    scale: float,
    softcap: float | None = None,
    new: NewKeys | None = None,
) -> None:
    """Write what single tokens attend to: q [tokens, heads, dim] over kv [2, kv_heads, slots, dim],
    into out [tokens, heads, dim], or where several items share a token's keys into partials [n,
    heads, dim] and the base-2 log-sum-exps of the scores into lse [n, heads] (both float32).

    new: puts the tokens' keys and values into kv first, as `FusedRows.rotate_and_write`; they
    follow the queries in the rows of q's memory. The queries in q stay as they are.
    """
    num_heads, dim = q.shape[1:]
    num_kv_heads = kv.shape[1]
    weight, eps = (new and new.norm) or (q[0], 0.0)
    cos_sin, new_slots = (q, q) if new is None else (new.cos_sin, new.slots)
    group = num_heads // num_kv_heads
    tile = decode_tile(q.dtype, dim, group, shared_memory(q.device))
    tile.launch(
        _attend_decode,
        (len(decodes.items), num_kv_heads),
        *(q, kv, out, partials, lse, decodes.items, decodes.slots, cos_sin, weight, new_slots),
        *(scale, softcap or 1.0, eps, num_heads, cos_sin.stride(0), weight.stride(0)),
        *(q.stride(0), q.stride(1), kv.stride(0), kv.stride(1), kv.stride(2)),
        *(out.stride(0), out.stride(1), partials.stride(0), partials.stride(1)),
        *(lse.stride(0), decodes.slots.stride(0)),
        GROUP=group,
        ROWS=tile.rows,
        KEYS=tile.keys,
        DIM=dim,
        WIDTH=padded(dim),
        HAS_SOFTCAP=softcap is not None,
        IS_NEW=new is not None,
        HAS_NORM=new is not None and new.norm is not None,
        IS_UPCAST=is_upcast(q),
    )
