"""Products of rows with the matrix of the expert that each was sent to, all experts in one launch.

Rows are taken sorted by expert, in tiles that hold rows of one expert only; no number leaves the
device to find them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, is_upcast, power_of_two

FEW, MANY = 16, 64  # rows of a tile
COLUMNS, DEPTH = tl.constexpr(64), tl.constexpr(64)


@dataclass(frozen=True, slots=True)
class SortedPairs:
    """Pairs of row and expert, sorted by expert. order: [pairs] which pair comes where. ends:
    [experts] behind the last pair of each; tile_ends: behind its last tile. tile: rows of one."""

    order: Tensor
    ends: Tensor
    tile_ends: Tensor
    tile: int

    @classmethod
    def of(cls, topk_ids: Tensor, num_experts: int) -> SortedPairs:
        """Sort pairs by the experts topk_ids [rows, k]."""
        flat = topk_ids.flatten()
        counts = torch.zeros(num_experts, dtype=torch.int32, device=topk_ids.device)
        counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
        tile = MANY if len(flat) > num_experts * FEW * 2 else FEW
        tiles = (counts + tile - 1) // tile
        order = flat.argsort(stable=True).int()
        return cls(order, counts.cumsum(0).int(), tiles.cumsum(0).int(), tile)

    @property
    def max_tiles(self) -> int:
        """As many as there can be."""
        return -(-len(self.order) // self.tile) + len(self.ends)


@triton.jit
def _grouped_gemm(
    x,
    weights,
    out,
    order,
    ends,
    tile_ends,
    topk_weights,
    x_row,
    weights_expert,
    weights_row,
    out_row,
    size,
    depth,
    per_row,
    EXPERTS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    ROWS: tl.constexpr,
    IS_GATHERED: tl.constexpr,
    IS_UPCAST: tl.constexpr,
):
    tile, block = tl.program_id(0), tl.program_id(1)
    experts = tl.arange(0, EXPERTS)
    is_expert = experts < NUM_EXPERTS
    tile_end = tl.load(tile_ends + experts, mask=is_expert, other=2147483647)
    expert = tl.sum((tile_end <= tile).to(tl.int32), 0)
    if expert >= NUM_EXPERTS:
        return
    first_tile = tl.where(expert > 0, tl.load(tile_ends + tl.maximum(expert - 1, 0)), 0)
    first = tl.where(expert > 0, tl.load(ends + tl.maximum(expert - 1, 0)), 0)
    end = tl.load(ends + expert)
    sorted_index = first + (tile - first_tile) * ROWS + tl.arange(0, ROWS)
    is_row = sorted_index < end
    pair = tl.load(order + sorted_index, mask=is_row, other=0)
    source = (pair // per_row if IS_GATHERED else sorted_index).to(tl.int64)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < size
    inner = tl.arange(0, DEPTH)
    rows = x + source[:, None] * x_row + inner[None, :]
    matrix = (
        weights
        + expert.to(tl.int64) * weights_expert
        + column.to(tl.int64)[None, :] * weights_row
        + inner[:, None]
    )
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for at in range(0, depth, DEPTH):
        is_inner = at + inner < depth
        left = tl.load(rows + at, mask=is_row[:, None] & is_inner[None, :], other=0.0)
        right = tl.load(matrix + at, mask=is_inner[:, None] & is_column[None, :], other=0.0)
        if IS_UPCAST:
            left, right = left.to(tl.float32), right.to(tl.float32)
        total += tl.dot(left, right, input_precision="ieee")
    if IS_GATHERED:
        target = sorted_index.to(tl.int64)
    else:
        target = pair.to(tl.int64)
        total *= tl.load(topk_weights + pair, mask=is_row, other=0.0)[:, None]
    tl.store(
        out + target[:, None] * out_row + column[None, :],
        total.to(out.dtype.element_ty),
        mask=is_row[:, None] & is_column[None, :],
    )


def gathered_gemm(x: Tensor, weights: Tensor, pairs: SortedPairs, per_row: int) -> Tensor:
    """Rows of x [rows, depth], `per_row` pairs of each, times weights [experts, size, depth]: a new
    [pairs, size] in sorted order."""
    out = x.new_empty((len(pairs.order), weights.shape[1]))
    _launch(x, weights, out, pairs, pairs.ends, per_row, is_gathered=True)
    return out


def weighted_gemm(x: Tensor, weights: Tensor, pairs: SortedPairs, topk_weights: Tensor) -> Tensor:
    """Sorted rows of x [pairs, depth] times weights [experts, size, depth] and topk_weights [pairs]
    (float32, in the order of before): a new [pairs, size] in that order, float32."""
    out = x.new_empty((len(pairs.order), weights.shape[1]), dtype=torch.float32)
    _launch(x, weights, out, pairs, topk_weights, 1, is_gathered=False)
    return out


def _launch(
    x: Tensor,
    weights: Tensor,
    out: Tensor,
    pairs: SortedPairs,
    topk_weights: Tensor,
    per_row: int,
    is_gathered: bool,
) -> None:
    num_experts, size, depth = weights.shape
    Launch(num_warps=4, num_stages=3)(
        _grouped_gemm,
        (pairs.max_tiles, -(-size // COLUMNS.value)),
        *(x, weights, out, pairs.order, pairs.ends, pairs.tile_ends, topk_weights, x.stride(0)),
        *(weights.stride(0), weights.stride(1), out.stride(0), size, depth, per_row),
        EXPERTS=power_of_two(num_experts),
        NUM_EXPERTS=num_experts,
        ROWS=pairs.tile,
        IS_GATHERED=is_gathered,
        IS_UPCAST=is_upcast(x),
    )
