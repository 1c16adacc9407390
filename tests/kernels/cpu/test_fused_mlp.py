"""A layer's feed-forward in one loop is, to the last bit, the same as step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from forkroot.kernels.cpu.jit import amx
from forkroot.kernels.cpu.jit.addresses import address, entry
from forkroot.kernels.cpu.linear.linear import Bf16x3Linear
from forkroot.kernels.cpu.linear.rows import PlainRows
from forkroot.kernels.cpu.loops import entries, fused_mlp

needs_tiles = pytest.mark.skipif(not amx.can_multiply(), reason="needs a processor with AMX")
EPS = 1e-5


class FeedForward:
    """norm -> gate and up -> silu(gate) * up -> down, in both ways."""

    def __init__(self, hidden: int, ffn: int, width: int, dtype: torch.dtype) -> None:
        random = torch.Generator().manual_seed(hidden + ffn)

        def numbers(*shape: int) -> torch.Tensor:
            return (torch.randn(shape, generator=random) / 4).to(dtype).float()

        self.weight, self.width = numbers(hidden), width
        self.up, self.down = (
            Bf16x3Linear(numbers(2 * ffn, hidden), 1),
            Bf16x3Linear(numbers(width, ffn), 1),
        )
        self.records = [self._record(kernel) for kernel in (self.up, self.down)]
        self.fused_mlp_record = np.zeros(1, fused_mlp.FUSED_MLP)
        function = entry(fused_mlp.feed_forward)
        inputs = self.weight.data_ptr(), *(address(record) for record in self.records)
        self.fused_mlp_record[0] = function.address, *inputs, EPS
        self._enter = function.ctypes

    @staticmethod
    def _record(kernel: Bf16x3Linear) -> np.ndarray[Any, Any]:
        record = np.zeros(1, entries.MATRIX)
        weights = address(kernel.weights), len(kernel.weights), kernel.num_panels
        record[0] = (
            0,
            kernel.depth,
            kernel.width,
            *weights,
            kernel.num_terms,
            kernel.row_terms,
            0,
        )
        return record

    def unfused(self, x: torch.Tensor) -> torch.Tensor:
        return PlainRows.silu_mul(self.up(PlainRows.norm(self.weight, EPS)(x)))

    def fused(self, x: torch.Tensor, out: torch.Tensor, is_added: bool) -> torch.Tensor:
        self._enter(address(self.fused_mlp_record), x.data_ptr(), len(x), out.data_ptr(), is_added)
        return out


def rows_of(count: int, hidden: int) -> torch.Tensor:
    return torch.randn(count, hidden, generator=torch.Generator().manual_seed(count))


@needs_tiles
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("hidden", "ffn", "width"), [(32, 64, 32), (96, 64 * 5, 96), (512, 64 * 9, 70)]
)
def test_a_fused_mlp_gives_the_same_bits_as_its_steps(
    hidden: int, ffn: int, width: int, dtype: torch.dtype
) -> None:
    layer = FeedForward(hidden, ffn, width, dtype)
    assert fused_mlp.fits(layer.up.depth, layer.up.width, layer.down.depth)
    for count in (0, 1, 15, 16, 17, 32, 48, 65, 128, 131, 300):
        x = rows_of(count, hidden)
        kept, gated = x.clone(), layer.unfused(x)
        made = layer.fused(x, torch.full((count, width), torch.nan), False)
        assert torch.equal(made, layer.down(gated))
        wanted = total = rows_of(count + 1, width)[:count]
        total = total.clone()
        layer.down.add_to(wanted, gated)
        assert torch.equal(layer.fused(x, total, True), wanted)
        assert torch.equal(x, kept)


@needs_tiles
def test_the_input_may_be_the_output_that_is_added_to() -> None:
    layer = FeedForward(64, 128, 64, torch.bfloat16)
    x = rows_of(140, 64)
    wanted = x.clone()
    layer.down.add_to(wanted, layer.unfused(x))
    assert torch.equal(layer.fused(x, x, True), wanted)


@needs_tiles
def test_a_row_gets_the_same_bits_in_any_batch_and_nan_changes_no_other_row() -> None:
    layer = FeedForward(64, 128, 64, torch.bfloat16)
    x = rows_of(150, 64)
    whole = layer.fused(x, torch.zeros(150, 64), False)
    for first, last in ((0, 1), (3, 40), (100, 150)):
        part = x[first:last].clone()
        assert torch.equal(layer.fused(part, torch.zeros_like(part), False), whole[first:last])
    x[70] = torch.nan
    made = layer.fused(x, torch.zeros(150, 64), False)
    assert made[70].isnan().all()
    others = torch.arange(150) != 70
    assert torch.equal(made[others], whole[others])


def test_sizes_that_do_not_fill_tiles_do_not_fit() -> None:
    assert fused_mlp.fits(512, 2 * 1408, 1408)
    assert not fused_mlp.fits(48, 2 * 128, 128)
    assert not fused_mlp.fits(64, 2 * 96, 96)
    assert not fused_mlp.fits(64, 128, 128)
