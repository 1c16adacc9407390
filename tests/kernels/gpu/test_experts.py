"""Grouped products of experts against one product a pair."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from forkroot.kernels.gpu.experts import SortedPairs, gathered_gemm, weighted_gemm

from .closeness import is_close


@pytest.mark.parametrize(("num_rows", "num_experts"), [(1, 8), (11, 5), (90, 2)])
def test_every_row_meets_the_matrices_of_its_experts(num_rows, num_experts, dtype, device) -> None:
    torch.manual_seed(num_rows)
    per_row, depth, size = 2, 72, 80
    x = torch.randn(num_rows, depth).to(dtype)
    first = torch.randn(num_experts, size, depth).to(dtype)
    second = torch.randn(num_experts, depth, size).to(dtype)
    chosen = torch.stack([torch.randperm(num_experts)[:per_row] for _ in range(num_rows)])
    shares, experts = torch.rand(num_rows * per_row), chosen.flatten()
    pairs = SortedPairs.of(chosen.to(device), num_experts)
    order = pairs.order.cpu().long()
    assert torch.equal(experts[order], experts.sort().values)

    middle = gathered_gemm(x.to(device), first.to(device), pairs, per_row)
    rows = x.double().repeat_interleave(per_row, 0)
    wanted = torch.einsum("psd,pd->ps", first[experts].double(), rows)
    assert is_close(middle, wanted[order], dtype)

    found = weighted_gemm(middle, second.to(device), pairs, shares.to(device))
    inner = torch.empty(len(order), size, dtype=torch.float64)
    inner[order] = middle.cpu().double()
    wanted = torch.einsum("pds,ps->pd", second[experts].double(), inner) * shares[:, None]
    assert is_close(found, wanted, dtype)
