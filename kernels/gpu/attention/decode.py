"""Decode attention: one new token of each sequence over its paged keys, page size one.

The keys of a token are split over several programs (flash decoding, split-KV), each for all query
heads of one key head; grouped queries are rows of one small matrix. `merge` merges the splits.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, is_upcast, power_of_two
from .softmax import online_softmax_step, store_result

KEYS = 64
MIN_ROWS = 16  # of a product on tensor cores


@dataclass(frozen=True, slots=True)
class DecodeItems:
    """N decode tokens of a batch and the keys that each sees; all int32.

    splits: how many programs share the keys of each. tokens: [N] their indices in the
    batch. slots: the keys of all. bases, firsts, ends: [N]; token n sees the keys at positions
    firsts[n]:ends[n] of its sequence, which are in `slots` from bases[n] + firsts[n] on.
    """

    splits: int
    tokens: Tensor
    bases: Tensor
    firsts: Tensor
    ends: Tensor
    slots: Tensor


@triton.jit
def _attend_decode(
    q,
    kv,
    out,
    lse,
    tokens,
    bases,
    firsts,
    ends,
    slots,
    scale,
    softcap,
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
    splits,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    token = tl.load(tokens + row).to(tl.int64)
    first, end = tl.load(firsts + row), tl.load(ends + row)
    share = tl.cdiv(tl.cdiv(end - first, splits), KEYS) * KEYS
    start = first + split * share
    stop = tl.minimum(start + share, end)

    rows, columns, offsets = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    is_row, is_column = rows < GROUP, columns < DIM
    heads = head * GROUP + rows
    is_element = is_row[:, None] & is_column[None, :]
    queries = tl.load(
        q + token * q_token + heads[:, None] * q_head + columns[None, :], mask=is_element, other=0.0
    )
    if IS_UPCAST:
        queries = queries.to(tl.float32)
    row_max = tl.full([ROWS], -float("inf"), tl.float32)
    state = row_max, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
    head_kv = kv + head.to(tl.int64) * kv_head
    slots += tl.load(bases + row)
    of_kv = head_kv, slots, columns, is_column, kv_value, kv_slot
    of_scores = scale, softcap
    for at in range(start, stop, KEYS):
        position = at + offsets
        is_key = position < stop
        state = online_softmax_step(
            queries, of_kv, position, is_key, is_key[None, :], of_scores, state, HAS_SOFTCAP, True
        )

    level, is_some = split.to(tl.int64), start < stop
    out += level * out_level + token * out_token
    store_result(
        out + heads[:, None] * out_head + columns[None, :],
        lse + level * lse_level + token * lse_token + heads,
        state,
        is_element & is_some,
        is_row,
    )


def attend_decode(
    q: Tensor,
    kv: Tensor,
    decodes: DecodeItems,
    out: Tensor,
    lse: Tensor,
    scale: float,
    softcap: float | None = None,
) -> None:
    """Write what each single token attends to: q [tokens, heads, dim] over kv [2, kv_heads, slots,
    dim] into out [at least splits, tokens, heads, dim] and the base-2 log-sum-exp of the scores
    into lse [levels, tokens, heads] (float32). A split without keys writes -inf there and
    nothing to `out`."""
    num_heads, dim = q.shape[1:]
    num_kv_heads = kv.shape[1]
    group = num_heads // num_kv_heads
    launch = Launch(num_warps=4, num_stages=3 if dim <= 128 else 2)
    launch(
        _attend_decode,
        (len(decodes.tokens), num_kv_heads, decodes.splits),
        *(q, kv, out, lse, decodes.tokens, decodes.bases, decodes.firsts, decodes.ends),
        *(decodes.slots, scale, softcap or 1.0, q.stride(0), q.stride(1)),
        *(kv.stride(0), kv.stride(1), kv.stride(2)),
        *(out.stride(0), out.stride(1), out.stride(2), lse.stride(0), lse.stride(1)),
        decodes.splits,
        GROUP=group,
        ROWS=max(MIN_ROWS, power_of_two(group)),
        KEYS=KEYS,
        DIM=dim,
        WIDTH=max(MIN_ROWS, power_of_two(dim)),
        HAS_SOFTCAP=softcap is not None,
        IS_UPCAST=is_upcast(q),
    )
