"""Where the matrices of layers lie that are computed by one call."""

from __future__ import annotations

import itertools

import pytest
import torch

pytest.importorskip("numba")

from forkroot.kernels.backend import LayerSizes, LayerWeights, Matrix
from forkroot.kernels.cpu.decoder.fused import fused_stack
from forkroot.kernels.cpu.linear.linear import PackedLinear
from forkroot.kernels.cpu.linear.rows import CompiledNorm

SIZES = LayerSizes(num_heads=2, num_kv_heads=1, dim=16, hidden=32, ffn=48, eps=1e-5)
SHAPES = (64, 32), (32, 32), (96, 32), (32, 48)  # [out, in] of a layer's matrices, as it reads them


def test_small_matrices_follow_one_another_in_memory_and_stay_the_same() -> None:
    random = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=random) for _ in range(3) for shape in SHAPES]
    products = [PackedLinear(weight) for weight in weights]
    norm = CompiledNorm(torch.ones(SIZES.hidden), SIZES.eps)
    layers = [
        LayerWeights(norm, None, norm, *(Matrix(kernel, None) for kernel in four), 0)
        for four in (products[:4], products[4:8], products[8:])
    ]
    x = {depth: torch.randn(3, depth, generator=random) for depth in (32, 48)}
    before = [kernel(x[kernel.depth]) for kernel in products]
    assert fused_stack(layers, SIZES, torch.float32) is not None
    for one, other in itertools.pairwise(products):
        assert one.weights.ctypes.data + one.weights.nbytes == other.weights.ctypes.data
    after = [kernel(x[kernel.depth]) for kernel in products]
    assert all(map(torch.equal, before, after))
