"""Which experts each token is sent to, and the order in which these take their tokens: two
launches, whatever the numbers; none of them leaves the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, power_of_two

ELEMENTS = 1024  # router logits of a program
FEW_PAIRS, MANY_PAIRS = 512, 4096  # read at a time
ROWS, FULL_ROWS = (16, 128), (16, 64)  # least and most rows of a tile; in float32


@triton.jit(do_not_specialize=["num_tokens"])
def _topk_softmax(
    logits,
    topk_ids,
    topk_weights,
    logits_row,
    num_tokens,
    EXPERTS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    ROWS: tl.constexpr,
    TOP_K: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    experts, places = tl.arange(0, EXPERTS), tl.arange(0, WIDTH)
    is_token, is_expert = token < num_tokens, experts < NUM_EXPERTS
    address = logits + token.to(tl.int64)[:, None] * logits_row + experts[None, :]
    values = tl.load(address, mask=is_token[:, None] & is_expert[None, :], other=0.0)
    values = tl.where(is_expert[None, :], values.to(tl.float32), -float("inf"))
    powers = tl.exp(values - tl.max(values, 1)[:, None])
    probs = powers / tl.sum(powers, 1)[:, None]
    # NaN comes first, as in torch.topk; what was taken or is no expert, last.
    keys = tl.where(probs == probs, probs, 2.0)
    keys = tl.where(is_expert[None, :], keys, -1.0)
    ids = tl.zeros([ROWS, WIDTH], tl.int32)
    weights = tl.zeros([ROWS, WIDTH], tl.float32)
    for place in tl.static_range(TOP_K):
        best = tl.argmax(keys, 1)  # of several alike the first
        is_best = experts[None, :] == best[:, None]
        is_place = places[None, :] == place
        ids = tl.where(is_place, best[:, None], ids)
        weights = tl.where(is_place, tl.sum(tl.where(is_best, probs, 0.0), 1)[:, None], weights)
        keys = tl.where(is_best, -2.0, keys)
    weights /= tl.sum(weights, 1)[:, None]
    out = token.to(tl.int64)[:, None] * TOP_K + places[None, :]
    is_out = is_token[:, None] & (places < TOP_K)[None, :]
    tl.store(topk_ids + out, ids, mask=is_out)
    tl.store(topk_weights + out, weights, mask=is_out)


def topk_softmax(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """The top_k most likely experts by router logits [tokens, experts]: new ids [tokens, top_k]
    (int32), the likeliest first and of equals the lowest, and their probabilities, which sum to 1
    (float32). A row with NaN gets some expert ids and NaN."""
    num_tokens, num_experts = logits.shape
    topk_ids = torch.empty((num_tokens, top_k), dtype=torch.int32, device=logits.device)
    topk_weights = torch.empty_like(topk_ids, dtype=torch.float32)
    experts = power_of_two(num_experts)
    rows = max(ELEMENTS // experts, 1)
    Launch(num_warps=4, num_stages=1)(
        _topk_softmax,
        (-(-num_tokens // rows),),
        *(logits, topk_ids, topk_weights, logits.stride(0), num_tokens),
        EXPERTS=experts,
        NUM_EXPERTS=num_experts,
        ROWS=rows,
        TOP_K=top_k,
        WIDTH=power_of_two(top_k),
    )
    return topk_ids, topk_weights


@triton.jit(do_not_specialize=["num_pairs", "num_tiles"])
def _sort_pairs(
    topk_ids,
    order,
    ends,
    tile_experts,
    tile_firsts,
    num_pairs,
    num_tiles,
    EXPERTS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each program counts the pairs of all experts, and lists those of one."""
    expert = tl.program_id(0)
    experts, offsets = tl.arange(0, EXPERTS), tl.arange(0, BLOCK)
    counts = tl.zeros([EXPERTS], tl.int32)
    for at in range(0, num_pairs, BLOCK):
        is_pair = at + offsets < num_pairs
        ids = tl.load(topk_ids + at + offsets, mask=is_pair, other=0).to(tl.int32)
        counts += tl.histogram(ids, EXPERTS, mask=is_pair)
    start = tl.sum(tl.where(experts < expert, counts, 0), 0)
    count = tl.sum(tl.where(experts == expert, counts, 0), 0)
    end = start + count
    tile_start = tl.sum(tl.where(experts < expert, (counts + ROWS - 1) // ROWS, 0), 0)
    tile_end = tile_start + (count + ROWS - 1) // ROWS
    tl.store(ends + expert, end)
    for at in range(0, num_tiles, BLOCK):
        tile = at + offsets
        is_mine = (tile >= tile_start) & (tile < tile_end)
        is_unused = (tile >= tile_end) & (expert == NUM_EXPERTS - 1)
        is_stored = (is_mine | is_unused) & (tile < num_tiles)
        tl.store(tile_experts + tile, tl.where(is_mine, expert, -1), mask=is_stored)
        tl.store(tile_firsts + tile, start + (tile - tile_start) * ROWS, mask=is_stored)
    for at in range(0, num_pairs, BLOCK):
        pair = at + offsets
        is_mine = tl.load(topk_ids + pair, mask=pair < num_pairs, other=-1) == expert
        place = start + tl.cumsum(is_mine.to(tl.int32), 0) - 1
        tl.store(order + place, pair, mask=is_mine)
        start += tl.sum(is_mine.to(tl.int32), 0)


@dataclass(frozen=True, slots=True)
class SortedPairs:
    """Pairs of token and expert, sorted by expert and, of one expert, by token; int32.

    order: [pairs] which pair comes where: pair i is of token i // per_token. ends: [experts] where
    the pairs of each end there. tile_experts: [tiles] the expert of each tile of `tile` pairs; -1:
    an unused one. tile_firsts: [tiles] its first pair, as an index into order.
    """

    order: Tensor
    ends: Tensor
    tile_experts: Tensor
    tile_firsts: Tensor
    tile: int
    per_token: int

    @classmethod
    def of(cls, topk_ids: Tensor, num_experts: int, dtype: torch.dtype) -> SortedPairs:
        """Sort pairs by the experts topk_ids [tokens, k], contiguous, in one launch. dtype: of the
        rows, which decides how many of them fit in a tile."""
        num_pairs, tile = topk_ids.numel(), rows_per_tile(topk_ids.numel(), num_experts, dtype)
        num_used = min(num_pairs, num_experts)
        num_tiles = num_used + (num_pairs - num_used) // tile  # as many as there can be
        sizes = num_pairs, num_experts, num_tiles, num_tiles
        numbers = torch.empty(sum(sizes), dtype=torch.int32, device=topk_ids.device)
        order, ends, tile_experts, tile_firsts = numbers.split(sizes)
        Launch(num_warps=8 if num_pairs > FEW_PAIRS else 4, num_stages=1)(
            _sort_pairs,
            (num_experts if num_pairs else 0,),
            *(topk_ids, order, ends, tile_experts, tile_firsts, num_pairs, num_tiles),
            EXPERTS=power_of_two(num_experts),
            NUM_EXPERTS=num_experts,
            ROWS=tile,
            BLOCK=MANY_PAIRS if num_pairs > FEW_PAIRS else FEW_PAIRS,
        )
        return cls(order, ends, tile_experts, tile_firsts, tile, topk_ids.shape[1])


def rows_per_tile(num_pairs: int, num_experts: int, dtype: torch.dtype) -> int:
    """Rows of a tile: about as many as an expert has pairs."""
    least, most = FULL_ROWS if dtype is torch.float32 else ROWS
    return min(max(power_of_two(-(-num_pairs // num_experts)), least), most)
