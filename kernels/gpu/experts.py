"""A mixture of experts: the products of rows with the matrices of the experts that each was sent
to, all experts in one launch (grouped GEMM), and the weighted sum of what they give for a token.

Rows are taken sorted by expert, in tiles that hold rows of one expert only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, is_upcast
from .routing import SortedPairs, topk_softmax

BLOCK = 1024  # columns of a sum


@dataclass(frozen=True, slots=True)
class Tile:
    """What a program multiplies at a time. columns, depth: of a product. group: tiles of rows whose
    programs follow one another, column by column, so that the cache holds what they read."""

    columns: int
    depth: int
    group: int
    launch: Launch

    @classmethod
    def of(cls, rows: int, dtype: torch.dtype) -> Tile:
        """For tiles of so many rows. All fit in the 99 KiB of shared memory that sm_86 and sm_89
        have."""
        if dtype is torch.float32:  # no tensor cores: sums and factors share the registers
            return cls(64, 32, 16, Launch(num_warps=8 if rows > 16 else 4, num_stages=2))
        if rows < 64:
            return cls(64, 64, 64, Launch(num_warps=4, num_stages=4))
        return cls(128, 64, 16, Launch(num_warps=8 if rows > 64 else 4, num_stages=3))


@triton.jit(do_not_specialize=["num_tiles"])
def _grouped_gemm(
    x,
    weights,
    out,
    order,
    ends,
    tile_experts,
    tile_firsts,
    num_tiles,
    x_row,
    weights_expert,
    weights_row,
    out_row,
    size,
    depth,
    PER_TOKEN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
    IS_GATED: tl.constexpr,
    HAS_REST: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    program, per_group = tl.program_id(0), GROUP * tl.cdiv(size, COLUMNS)
    first_tile = program // per_group * GROUP
    num_together = tl.minimum(num_tiles - first_tile, GROUP)
    tile = first_tile + program % per_group % num_together
    block = program % per_group // num_together
    expert = tl.load(tile_experts + tile)
    if expert < 0:
        return
    place = tl.load(tile_firsts + tile) + tl.arange(0, ROWS)
    is_row = place < tl.load(ends + expert)
    pair = tl.load(order + place, mask=is_row, other=0)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    row_of_matrix = tl.minimum(column, size - 1)
    if IS_GATED:  # gate and up side by side, which is how a thread holds its sums
        row_of_matrix = row_of_matrix // 2 + row_of_matrix % 2 * (size // 2)
    source = pair // PER_TOKEN if IS_GATED else tl.where(is_row, place, 0)
    inner = tl.arange(0, DEPTH)
    rows = x + source.to(tl.int64)[:, None] * x_row + inner[None, :]
    matrix = weights + expert.to(tl.int64) * weights_expert + inner[:, None]
    matrix += row_of_matrix.to(tl.int64)[None, :] * weights_row
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for at in range(0, depth, DEPTH):
        if HAS_REST:
            is_inner = at + inner < depth
            left = tl.load(rows + at, mask=is_inner[None, :], other=0.0)
            right = tl.load(matrix + at, mask=is_inner[:, None], other=0.0)
        else:
            left, right = tl.load(rows + at), tl.load(matrix + at)
        if IS_UPCAST:
            left, right = left.to(tl.float32), right.to(tl.float32)
        total += tl.dot(left, right, input_precision="ieee")
    if IS_GATED:
        gate, up = tl.split(tl.reshape(total, [ROWS, COLUMNS // 2, 2]))
        result = gate * tl.sigmoid(gate) * up
        out_column = block * (COLUMNS // 2) + tl.arange(0, COLUMNS // 2)
        target, is_column = place.to(tl.int64), out_column < size // 2
    else:
        result, out_column = total, column
        target, is_column = pair.to(tl.int64), column < size
    tl.store(
        out + target[:, None] * out_row + out_column[None, :],
        result.to(out.dtype.element_ty),
        mask=is_row[:, None] & is_column[None, :],
    )


def gated_gemm(x: Tensor, w1: Tensor, pairs: SortedPairs) -> Tensor:
    """silu(gate) * up of rows of x [tokens, depth] times w1 [experts, gate then up, depth]: a new
    [pairs, ffn] in sorted order."""
    out = x.new_empty((len(pairs.order), w1.shape[1] // 2))
    _launch(x, w1, out, pairs, is_gated=True)
    return out


def scattered_gemm(x: Tensor, w2: Tensor, pairs: SortedPairs) -> Tensor:
    """Sorted rows of x [pairs, depth] times w2 [experts, size, depth]: a new [pairs, size] in the
    order that pairs had before."""
    out = x.new_empty((len(pairs.order), w2.shape[1]))
    _launch(x, w2, out, pairs, is_gated=False)
    return out


def _launch(x: Tensor, weights: Tensor, out: Tensor, pairs: SortedPairs, is_gated: bool) -> None:
    _, size, depth = weights.shape
    tile, num_tiles = Tile.of(pairs.tile, x.dtype), len(pairs.tile_experts)
    tile.launch(
        _grouped_gemm,
        (num_tiles * -(-size // tile.columns),),
        *(x, weights, out, pairs.order, pairs.ends, pairs.tile_experts, pairs.tile_firsts),
        *(num_tiles, x.stride(0), weights.stride(0), weights.stride(1), out.stride(0)),
        *(size, depth),
        PER_TOKEN=pairs.per_token,
        ROWS=pairs.tile,
        COLUMNS=tile.columns,
        DEPTH=tile.depth,
        GROUP=tile.group,
        IS_GATED=is_gated,
        HAS_REST=depth % tile.depth > 0,
        IS_UPCAST=is_upcast(x),
    )


@triton.jit
def _weighted_sum(
    rows,
    topk_weights,
    total,
    rows_row,
    total_row,
    size,
    PER_TOKEN: tl.constexpr,
    IS_ADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < size
    found = tl.zeros([BLOCK], tl.float32)
    for place in tl.static_range(PER_TOKEN):
        pair = token * PER_TOKEN + place
        row = tl.load(rows + pair * rows_row + column, mask=is_column, other=0.0)
        found += row.to(tl.float32) * tl.load(topk_weights + pair)
    address = total + token * total_row + column
    if IS_ADDED:
        found += tl.load(address, mask=is_column, other=0.0).to(tl.float32)
    tl.store(address, found.to(total.dtype.element_ty), mask=is_column)


def weighted_sum(rows: Tensor, topk_weights: Tensor, total: Tensor | None = None) -> Tensor:
    """The rows [pairs, size] of each token summed by topk_weights [tokens, k] (float32): added to
    total [tokens, size], or a new tensor."""
    num_tokens, per_token = topk_weights.shape
    out = rows.new_empty((num_tokens, rows.shape[1])) if total is None else total
    Launch(num_warps=4, num_stages=1)(
        _weighted_sum,
        (num_tokens, -(-rows.shape[1] // BLOCK)),
        *(rows, topk_weights, out, rows.stride(0), out.stride(0), rows.shape[1]),
        PER_TOKEN=per_token,
        IS_ADDED=total is not None,
        BLOCK=BLOCK,
    )
    return out


def fused_moe(
    x: Tensor,
    w1: Tensor,
    w2: Tensor,
    router_logits: Tensor,
    top_k: int,
    total: Tensor | None = None,
) -> Tensor:
    """As `FusedMoE`, in five launches."""
    topk_ids, topk_weights = topk_softmax(router_logits, top_k)
    pairs = SortedPairs.of(topk_ids, len(w1), x.dtype)
    return weighted_sum(scattered_gemm(gated_gemm(x, w1, pairs), w2, pairs), topk_weights, total)
