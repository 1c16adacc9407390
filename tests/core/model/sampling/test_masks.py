"""Packed masks against plain sets of allowed tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.sampling.masks import masked
from forkroot.core.model.sampling.sampler import sample


def packed(allowed: set[int], num_words: int) -> np.ndarray:
    """Bit i of word w says whether token 32 * w + i is allowed."""
    words = [sum(1 << i for i in range(32) if 32 * w + i in allowed) for w in range(num_words)]
    return np.array(words, np.uint32).view(np.int32)


@pytest.mark.parametrize("size", [5, 32, 70, 256])
@pytest.mark.parametrize("num_words", [1, 3, 9])
@pytest.mark.parametrize("is_mixed", [True, False])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_only_allowed_tokens_keep_their_logits(
    size: int, num_words: int, is_mixed: bool, is_compiled: bool
) -> None:
    random = np.random.default_rng(size)
    logits = torch.from_numpy(random.standard_normal((6, size)).astype(np.float32))
    before = logits.clone()
    sets = [set(random.integers(0, 32 * num_words, 40).tolist()) for _ in range(6)]
    params = [
        GREEDY if is_mixed and row % 2 else SamplingParams(mask=packed(allowed, num_words))
        for row, allowed in enumerate(sets)
    ]
    result = masked(logits, params, is_compiled)
    for row, (it, allowed) in enumerate(zip(params, sets, strict=True)):
        for token in range(size):
            is_allowed = it.mask is None or token in allowed
            assert float(result[row, token]) == (before[row, token] if is_allowed else -np.inf)
    assert torch.equal(logits, before)


def test_nothing_is_copied_where_there_is_no_mask() -> None:
    logits = torch.zeros(2, 40)
    assert masked(logits, [GREEDY, SamplingParams(temperature=1.0)]) is logits


def test_samples_stay_inside_their_masks() -> None:
    random = np.random.default_rng(0)
    logits = torch.from_numpy(random.standard_normal((50, 90)).astype(np.float32))
    allowed = {3, 33, 64, 89}
    for it in (
        SamplingParams(),
        SamplingParams(temperature=2.0),
        SamplingParams(temperature=2.0, top_p=0.9, top_k=3),
    ):
        params = [
            SamplingParams(it.temperature, seed, 0, it.top_k, it.top_p, mask=packed(allowed, 3))
            for seed in range(50)
        ]
        assert set(sample(logits, params).tokens.tolist()) <= allowed


def test_a_mask_that_allows_nothing_gives_minus_one() -> None:
    params = [SamplingParams(mask=packed(set(), 1)), SamplingParams(mask=packed({4}, 1))]
    assert sample(torch.zeros(2, 20), params).tokens.tolist() == [-1, 4]


@pytest.mark.parametrize("size", [5, 31, 32, 70, 4000])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_compiled_loops_find_the_likeliest_allowed_token_of_the_plain_way(
    size: int, share: float
) -> None:
    pytest.importorskip("numba")
    random = np.random.default_rng(size)
    rows = np.round(random.standard_normal((9, size)) * 4).astype(np.float32)  # has ties
    rows[2, size // 2], rows[3, 0], rows[4] = np.nan, np.inf, -np.inf
    sets = [set(np.flatnonzero(random.random(size) < share).tolist()) for _ in rows]
    params = [SamplingParams(mask=packed(allowed, -(-size // 32))) for allowed in sets]
    params[5], params[6] = GREEDY, SamplingParams(mask=np.zeros(0, np.int32))
    logits = torch.from_numpy(rows)
    found = sample(logits, params, is_compiled=True)
    assert found.tokens.tolist() == sample(logits, params, is_compiled=False).tokens.tolist()
    assert found.tokens.tolist()[2:5] == [-1, -1, -1]
    assert found.tokens.tolist()[5:7] == [rows[5].argmax(), -1]
    assert np.isnan(found.logprobs).all()
    assert found.tops == ((),) * 9
