"""Single new tokens over keys in any slots (paged decode with page size one).

The keys of a token are split over several programs, each of which serves all query heads of one
head of keys (flash decoding, split-KV; grouped queries are the rows of one small product). What the
splits give is put together by `merge`.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, is_upcast, power_of_two
from .softmax import fold

KEYS = 64
MIN_ROWS = 16  # of a product on tensor cores


@dataclass(frozen=True, slots=True)
class Singles:
    """N single tokens of a batch and the keys that each sees; all int32.

    splits: among how many programs the keys of each are divided. tokens: [N] their places in the
    batch. slots: the keys of all. bases, firsts, ends: [N]; token n sees the keys at positions
    firsts[n]:ends[n] of its sequence, which stand in `slots` from bases[n] + firsts[n] on.
    """

    splits: int
    tokens: Tensor
    bases: Tensor
    firsts: Tensor
    ends: Tensor
    slots: Tensor


@triton.jit
def _attend_tokens(
    q,
    kv,
    out,
    totals,
    tokens,
    bases,
    firsts,
    ends,
    slots,
    scale,
    softcap,
    q_token,
    q_head,
    kv_part,
    kv_head,
    kv_slot,
    out_level,
    out_token,
    out_head,
    totals_level,
    totals_token,
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

    rows, columns, places = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    is_row, is_column = rows < GROUP, columns < DIM
    heads = head * GROUP + rows
    here = is_row[:, None] & is_column[None, :]
    queries = tl.load(
        q + token * q_token + heads[:, None] * q_head + columns[None, :], mask=here, other=0.0
    )
    if IS_UPCAST:
        queries = queries.to(tl.float32)
    highest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    keys_of_head = kv + head.to(tl.int64) * kv_head
    slots += tl.load(bases + row)

    for at in range(start, stop, KEYS):
        place = at + places
        is_key = place < stop
        highest, total, mixed = fold(
            queries,
            keys_of_head,
            slots,
            place,
            is_key,
            is_key[None, :],
            columns,
            is_column,
            scale,
            softcap,
            kv_part,
            kv_slot,
            highest,
            total,
            mixed,
            HAS_SOFTCAP,
            True,
            IS_UPCAST,
        )

    is_some = start < stop
    level = split.to(tl.int64)
    result = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        out + level * out_level + token * out_token + heads[:, None] * out_head + columns[None, :],
        result.to(out.dtype.element_ty),
        mask=here & is_some,
    )
    tl.store(
        totals + level * totals_level + token * totals_token + heads,
        tl.where(is_some, highest + tl.log2(tl.where(total == 0.0, 1.0, total)), -float("inf")),
        mask=is_row,
    )


def attend_tokens(
    q: Tensor,
    kv: Tensor,
    singles: Singles,
    out: Tensor,
    totals: Tensor,
    scale: float,
    softcap: float | None = None,
) -> None:
    """Write what each single token attends to: q [tokens, heads, dim] over kv [2, kv_heads, slots,
    dim] into out [at least splits, tokens, heads, dim] and the base-2 log-sum-exp of the scores
    into totals [levels, tokens, heads] (float32). A split without keys writes -inf there and
    nothing to `out`."""
    num_heads, dim = q.shape[1:]
    num_kv_heads = kv.shape[1]
    group = num_heads // num_kv_heads
    launch = Launch(num_warps=4, num_stages=3 if dim <= 128 else 2)
    launch(
        _attend_tokens,
        (len(singles.tokens), num_kv_heads, singles.splits),
        *(q, kv, out, totals, singles.tokens, singles.bases, singles.firsts, singles.ends),
        *(singles.slots, scale, softcap or 1.0, q.stride(0), q.stride(1)),
        *(kv.stride(0), kv.stride(1), kv.stride(2)),
        *(out.stride(0), out.stride(1), out.stride(2), totals.stride(0), totals.stride(1)),
        singles.splits,
        GROUP=group,
        ROWS=max(MIN_ROWS, power_of_two(group)),
        KEYS=KEYS,
        DIM=dim,
        WIDTH=max(MIN_ROWS, power_of_two(dim)),
        HAS_SOFTCAP=softcap is not None,
        IS_UPCAST=is_upcast(q),
    )
