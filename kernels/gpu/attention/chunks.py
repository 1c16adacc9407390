"""Many new tokens over keys in any slots: chunked prefill over a cached prefix, and what several
sequences share (paged extend and cascade attention with page size one).

Work comes as parts, each a list of queries over a list of keys: a sequence's new tokens over all
that it reads, or the tokens of many sequences over a root that they share, read once. The heads
that share keys are rows of one tile beside the tokens, so that a key is loaded once for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import Launch, is_upcast, power_of_two
from .softmax import fold

ROWS, KEYS = 128, 64
FULL_ROWS, FULL_KEYS = 16, 32  # in float32, which has no tensor cores and twice the registers
FEW_ROWS = 16


@dataclass(frozen=True, slots=True)
class Parts:
    """P lists of queries, each over a list of keys, cut into W tiles of queries; all int32.

    tile: queries of a tile. window: keys that a query sees at most, up to itself; 0: no limit.
    tokens: the queries of all parts, as places in the batch. slots: the keys of all parts.
    token_firsts, slot_firsts: [P] where those of a part begin; num_tokens, num_keys: [P] how many.
    hidden: [P] query i of a part sees its first num_keys - hidden + i + 1 keys; 0: every query
      sees all.
    levels: [P] where in the output a part's results go.
    work_parts, work_firsts: [W] which part a tile is of, and its first query there.
    """

    tile: int
    window: int
    tokens: Tensor
    slots: Tensor
    token_firsts: Tensor
    slot_firsts: Tensor
    num_tokens: Tensor
    num_keys: Tensor
    hidden: Tensor
    levels: Tensor
    work_parts: Tensor
    work_firsts: Tensor


@triton.jit
def _attend_parts(
    q,
    kv,
    out,
    totals,
    tokens,
    slots,
    token_firsts,
    slot_firsts,
    num_tokens,
    num_keys,
    hidden,
    levels,
    work_parts,
    work_firsts,
    scale,
    softcap,
    window,
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
    part = tl.load(work_parts + work)
    first = tl.load(work_firsts + work)
    count = tl.load(num_tokens + part)
    length = tl.load(num_keys + part)
    unseen = tl.load(hidden + part)
    level = tl.load(levels + part).to(tl.int64)
    slots += tl.load(slot_firsts + part)

    rows, columns, places = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    query = first + rows // HEADS  # [ROWS] in the part
    heads = head * GROUP + rows % HEADS
    is_row = (query < count) & (rows % HEADS < GROUP)
    is_column = columns < DIM
    here = is_row[:, None] & is_column[None, :]
    token = tl.load(tokens + tl.load(token_firsts + part) + query, mask=query < count, other=0)
    token = token.to(tl.int64)
    queries = tl.load(
        q + token[:, None] * q_token + heads[:, None] * q_head + columns[None, :],
        mask=here,
        other=0.0,
    )
    if IS_UPCAST:
        queries = queries.to(tl.float32)
    # How many keys each query sees; none that the last query of the part does not see.
    reach = tl.where(unseen == 0, length, tl.minimum(length - unseen + query + 1, length))
    last = tl.minimum(first + ROWS // HEADS, count) - 1
    stop = tl.where(unseen == 0, length, tl.minimum(length - unseen + last + 1, length))
    full = tl.where(unseen == 0, length, tl.minimum(length - unseen + first + 1, length))
    start, low = 0, 0
    if HAS_WINDOW:
        low = tl.maximum(full - window, 0)
        start = low // KEYS * KEYS
        full = start
    full = full // KEYS * KEYS

    highest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    keys_of_head = kv + head.to(tl.int64) * kv_head
    for at in range(start, full, KEYS):
        place = at + places
        highest, total, mixed = fold(
            queries,
            keys_of_head,
            slots,
            place,
            place < length,
            place < length,
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
            False,
            IS_UPCAST,
        )
    for at in range(full, stop, KEYS):
        place = at + places
        is_seen = place[None, :] < reach[:, None]
        if HAS_WINDOW:
            is_seen = is_seen & (place[None, :] >= reach[:, None] - window)
        highest, total, mixed = fold(
            queries,
            keys_of_head,
            slots,
            place,
            (place >= low) & (place < stop),
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
            HAS_SOFTCAP,
            True,
            IS_UPCAST,
        )

    result = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        out
        + level * out_level
        + token[:, None] * out_token
        + heads[:, None] * out_head
        + columns[None, :],
        result.to(out.dtype.element_ty),
        mask=here,
    )
    tl.store(
        totals + level * totals_level + token * totals_token + heads,
        tl.where(
            total == 0.0, -float("inf"), highest + tl.log2(tl.where(total == 0.0, 1.0, total))
        ),
        mask=is_row,
    )


def tile_of(num_tokens: int, group: int, dtype: torch.dtype) -> int:
    """Queries in a tile for parts of up to so many, where so many heads share keys."""
    heads = power_of_two(group)
    most = FULL_ROWS if dtype is torch.float32 else ROWS
    rows = min(max(power_of_two(num_tokens * heads), FEW_ROWS), most)
    return max(rows // heads, 1)


def attend_parts(
    q: Tensor,
    kv: Tensor,
    parts: Parts,
    out: Tensor,
    totals: Tensor,
    scale: float,
    softcap: float | None = None,
) -> None:
    """Write what the queries of each part attend to: q [tokens, heads, dim] over kv [2, kv_heads,
    slots, dim] into out [levels, tokens, heads, dim], and the base-2 log-sum-exp of the scores into
    totals [levels, tokens, heads] (float32), each part into its own level."""
    num_heads, dim = q.shape[1:]
    num_kv_heads = kv.shape[1]
    group = num_heads // num_kv_heads
    heads = power_of_two(group)
    rows = max(parts.tile * heads, FEW_ROWS)
    is_wide = rows * max(dim, 64) > 64 * 64 or q.dtype is torch.float32
    launch = Launch(num_warps=8 if is_wide else 4, num_stages=2)
    launch(
        _attend_parts,
        (len(parts.work_parts), num_kv_heads),
        *(q, kv, out, totals, parts.tokens, parts.slots, parts.token_firsts, parts.slot_firsts),
        *(parts.num_tokens, parts.num_keys, parts.hidden, parts.levels),
        *(parts.work_parts, parts.work_firsts, scale, softcap or 1.0, parts.window),
        *(q.stride(0), q.stride(1), kv.stride(0), kv.stride(1), kv.stride(2)),
        *(out.stride(0), out.stride(1), out.stride(2), totals.stride(0), totals.stride(1)),
        GROUP=group,
        HEADS=heads,
        ROWS=rows,
        KEYS=FULL_KEYS if q.dtype is torch.float32 else KEYS,
        DIM=dim,
        WIDTH=max(16, power_of_two(dim)),
        HAS_SOFTCAP=softcap is not None,
        HAS_WINDOW=parts.window > 0,
        IS_UPCAST=is_upcast(q),
    )
