"""Grouped products of experts and mixtures of them, against one product a pair."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

from forkroot.kernels.gpu.experts import fused_moe, gated_gemm, scattered_gemm, weighted_sum
from forkroot.kernels.gpu.routing import SortedPairs

from .closeness import is_close, poisoned


def gated(products: Tensor) -> Tensor:
    gate, up = products.chunk(2, -1)
    return F.silu(gate) * up


@pytest.mark.parametrize(("num_rows", "num_experts"), [(1, 8), (11, 5), (90, 2), (150, 2)])
def test_every_row_meets_the_matrices_of_its_experts(num_rows, num_experts, dtype, device) -> None:
    torch.manual_seed(num_rows)
    per_row, depth, size = 2, 72, 80
    x = torch.randn(num_rows, depth).to(dtype)
    w1 = torch.randn(num_experts, 2 * size, depth).to(dtype)
    w2 = torch.randn(num_experts, depth, size).to(dtype)
    chosen = torch.stack([torch.randperm(num_experts)[:per_row] for _ in range(num_rows)])
    experts, pairs = chosen.flatten(), SortedPairs.of(chosen.to(device), num_experts, dtype)
    order = pairs.order.cpu().long()

    middle = gated_gemm(x.to(device), w1.to(device), pairs)
    rows = x.double().repeat_interleave(per_row, 0)
    wanted = gated(torch.einsum("psd,pd->ps", w1[experts].double(), rows))
    assert is_close(middle, wanted[order], dtype)

    found = scattered_gemm(middle, w2.to(device), pairs)
    inner = torch.empty(len(order), size, dtype=torch.float64)
    inner[order] = middle.cpu().double()
    assert is_close(found, torch.einsum("pds,ps->pd", w2[experts].double(), inner), dtype)


@pytest.mark.parametrize("is_added", [False, True])
def test_a_tokens_rows_are_summed_by_their_weights(is_added, dtype, device) -> None:
    torch.manual_seed(1)
    rows, weights = torch.randn(3 * 7, 1500).to(dtype), torch.rand(3, 7)
    before = torch.randn(3, 1500).to(dtype)
    total = before.clone().to(device) if is_added else None
    found = weighted_sum(rows.to(device), weights.to(device), total)
    wanted = (rows.double().view(3, 7, -1) * weights[:, :, None]).sum(1)
    assert found.dtype is dtype and (total is None or found is total)
    assert is_close(found, wanted + before.double() if is_added else wanted, dtype)


def mixture(x: Tensor, w1: Tensor, w2: Tensor, router_logits: Tensor, top_k: int) -> Tensor:
    """Every expert of every token, in float64."""
    weights = router_logits.double().softmax(-1)
    weights = weights.masked_fill(weights < weights.topk(top_k).values[:, -1:], 0)
    hidden = gated(torch.einsum("td,esd->tes", x.double(), w1.double()))
    results = torch.einsum("tes,eds->ted", hidden, w2.double())
    return torch.einsum("te,ted->td", weights / weights.sum(-1, keepdim=True), results)


SHAPES = {
    "a token of mixtral": (1, 8, 2),
    "a chunk of mixtral": (70, 2, 2),
    "some tokens of qwen3-30b-a3b": (5, 128, 8),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_mixture_is_the_weighted_sum_of_its_likeliest_experts(case, device) -> None:
    num_tokens, num_experts, top_k = SHAPES[case]
    torch.manual_seed(num_tokens)
    hidden, ffn, dtype = 64, 24, torch.float16
    x, before = torch.randn(2, num_tokens, hidden).to(dtype)
    w1 = torch.randn(num_experts, 2 * ffn, hidden).to(dtype) / 8
    w2 = torch.randn(num_experts, hidden, ffn).to(dtype) / 4
    logits = torch.randn(num_tokens, num_experts)
    given = [it.to(device) for it in (x, w1, w2, logits)]
    poisoned(num_tokens * top_k, hidden, dtype=dtype, device=device)
    found = fused_moe(*given, top_k, before.clone().to(device))
    assert is_close(found, before.double() + mixture(x, w1, w2, logits, top_k), dtype)
