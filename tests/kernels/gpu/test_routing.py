"""The likeliest experts of tokens, and pairs of both sorted by expert, against plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from forkroot.kernels.gpu.routing import SortedPairs, rows_per_tile, topk_softmax

HALF = torch.bfloat16


def likeliest(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """In plain torch; of equals the lowest."""
    sorted_probs = torch.sort(logits.float().softmax(-1), dim=-1, descending=True, stable=True)
    weights, ids = sorted_probs.values[:, :top_k], sorted_probs.indices[:, :top_k]
    return ids.int(), weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("num_tokens", "num_experts", "top_k"), [(1, 8, 2), (150, 8, 2), (11, 5, 3), (37, 128, 8)]
)
def test_the_likeliest_experts_are_those_of_torch(
    num_tokens, num_experts, top_k, dtype, device
) -> None:
    torch.manual_seed(num_tokens)
    logits = torch.randn(num_tokens, num_experts + 1).to(dtype)[:, :num_experts]
    ids, weights = topk_softmax(logits.to(device), top_k)
    wanted_ids, wanted = likeliest(logits, top_k)
    assert torch.equal(ids.cpu(), wanted_ids) and ids.dtype is torch.int32
    torch.testing.assert_close(weights.cpu(), wanted, rtol=1e-5, atol=1e-7)


def test_of_equally_likely_experts_the_lowest_come_first(device) -> None:
    logits = torch.tensor([[0.0] * 6, [1, 2, 1, 2, 1, 2], [-200.0, -300.0, 9, -300.0, -200.0, 0]])
    ids, weights = topk_softmax(logits.to(device), 4)
    assert ids.tolist() == [[0, 1, 2, 3], [1, 3, 5, 0], [2, 5, 0, 1]]
    assert weights[0].tolist() == [0.25] * 4 and weights[2, 2:].tolist() == [0, 0]


def test_rows_that_are_not_numbers_still_name_experts(device) -> None:
    logits = torch.zeros(2, 5)
    logits[0, 2] = torch.nan
    ids, weights = topk_softmax(logits.to(device), 2)
    assert ids.tolist() == [[0, 1]] * 2
    assert weights[0].isnan().all() and weights[1].tolist() == [0.5, 0.5]


CASES = {
    "one token": (1, 2, 8),
    "fewer pairs than experts": (3, 8, 128),
    "experts without tokens": (40, 2, 12),
    "more pairs than are read at a time": (700, 8, 9),
    "tiles of 128": (600, 2, 8),
}


@pytest.mark.parametrize("case", CASES)
def test_pairs_are_sorted_by_expert_then_by_token(case, device) -> None:
    num_tokens, top_k, num_experts = CASES[case]
    torch.manual_seed(num_tokens)
    used = max(num_experts // 2, top_k)  # only every other expert, where there are enough
    ids = torch.rand(num_tokens, used).argsort(-1)[:, :top_k] * (num_experts // used)
    pairs = SortedPairs.of(ids.int().to(device), num_experts, HALF)
    assert torch.equal(pairs.order.cpu().long(), ids.flatten().argsort(stable=True))
    counts = ids.flatten().bincount(minlength=num_experts)
    assert torch.equal(pairs.ends.cpu().long(), counts.cumsum(0))
    wanted = [
        (expert, first)
        for expert, (end, count) in enumerate(
            zip(pairs.ends.tolist(), counts.tolist(), strict=True)
        )
        for first in range(end - count, end, pairs.tile)
    ]
    num_tiles = len(wanted)
    found = list(zip(pairs.tile_experts.tolist(), pairs.tile_firsts.tolist(), strict=True))
    assert found[:num_tiles] == wanted
    assert pairs.tile_experts[num_tiles:].eq(-1).all()


def test_there_is_room_for_as_many_tiles_as_any_choice_needs(device) -> None:
    for counts in ([16, 1, 1, 1], [17, 1, 1, 0], [5, 5, 5, 4], [19, 0, 0, 0]):
        ids = torch.arange(4).repeat_interleave(torch.tensor(counts))[:, None]
        pairs = SortedPairs.of(ids.int().to(device), 4, HALF)
        assert pairs.tile == 16
        assert int((pairs.tile_experts >= 0).sum()) == sum(-(-count // 16) for count in counts)


def test_tiles_grow_with_the_pairs_of_an_expert() -> None:
    found = [rows_per_tile(num_pairs, 8, HALF) for num_pairs in (2, 128, 200, 512, 1024, 16_384)]
    assert found == [16, 16, 32, 64, 128, 128]
    assert rows_per_tile(16_384, 8, torch.float32) == 64


def test_a_step_without_tokens_has_no_pairs(device) -> None:
    ids, weights = topk_softmax(torch.empty(0, 8, device=device), 2)
    pairs = SortedPairs.of(ids, 8, HALF)
    assert ids.shape == weights.shape == (0, 2) and len(pairs.order) == len(pairs.tile_experts) == 0
