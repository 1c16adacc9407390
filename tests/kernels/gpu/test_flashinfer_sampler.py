"""Sampling by FlashInfer: which calls it gets, on a double where there is no GPU and by itself
where there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import SamplingParams
from forkroot.core.model.sampling.sampler import uniforms
from forkroot.kernels.gpu.flashinfer_sampler import FlashInferSampler

from . import flashinfer_double

SIZE, TIMES = 40, 4000


@pytest.fixture
def library(device: torch.device) -> Any:
    if device.type == "cpu":
        return flashinfer_double
    return pytest.importorskip("flashinfer").sampling


def sampled(
    logits: torch.Tensor, all_params: list[SamplingParams], library: Any, device: torch.device
) -> list[int]:
    def floats(name: str) -> torch.Tensor:
        return torch.tensor([getattr(it, name) for it in all_params], device=device)

    before = logits.clone()
    found = FlashInferSampler(library)(
        logits.to(device),
        floats("temperature").float(),
        floats("top_k").int(),
        floats("top_p").float(),
        floats("min_p").float(),
        torch.from_numpy(uniforms(all_params)).to(device),
    )
    assert torch.equal(logits.nan_to_num(), before.nan_to_num()) and found.dtype is torch.int32
    return found.tolist()


def kept(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Probabilities of all tokens under a draw's filters."""
    shares = np.exp((logits - logits.max()) / params.temperature)
    shares /= shares.sum()
    order = np.argsort(-shares)
    if params.top_k > 0:
        shares[order[params.top_k :]] = 0
        shares /= shares.sum()
    before = np.cumsum(shares[order]) - shares[order]
    shares[order[before >= params.top_p]] = 0
    shares[shares < params.min_p * shares.max()] = 0
    return shares / shares.sum()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(1.0),
        SamplingParams(0.5),
        SamplingParams(1.0, top_k=5),
        SamplingParams(1.0, top_p=0.7),
        SamplingParams(2.0, top_k=20, top_p=0.6),
        SamplingParams(1.5, min_p=0.2),
        SamplingParams(1.0, top_k=12, top_p=0.9, min_p=0.1),
    ],
    ids=lambda params: f"{params.temperature} {params.top_k} {params.top_p} {params.min_p}",
)
def test_tokens_come_as_often_as_the_filters_leave_them(params, library, device) -> None:
    rng = np.random.default_rng(3)
    logits = rng.standard_normal(SIZE).astype(np.float32) * 1.5
    rows = torch.from_numpy(np.tile(logits, (TIMES, 1)))
    counts = np.bincount(sampled(rows, [params] * TIMES, library, device), minlength=SIZE)
    shares = kept(logits.astype(np.float64), params)
    assert counts[shares == 0].sum() == 0
    assert np.abs(counts / TIMES - shares).max() < 4 * np.sqrt(0.25 / TIMES)


def test_greedy_rows_get_the_likeliest_and_unsound_rows_none(library, device) -> None:
    logits = torch.zeros(6, SIZE)
    logits[0, 9] = 5.0
    logits[1] = -torch.inf
    logits[2, 3] = torch.nan
    logits[3, 4] = torch.inf
    logits[4, 7:] = -torch.inf
    all_params = [
        SamplingParams(),
        SamplingParams(1.0),
        SamplingParams(),
        SamplingParams(1.0),
        SamplingParams(1.0, seed=3),
        SamplingParams(),
    ]
    found = sampled(logits, all_params, library, device)
    assert found[:4] == [9, -1, -1, -1]
    assert 0 <= found[4] < 7 and found[5] == 0


def test_a_batch_is_sampled_alike_again_and_another_seed_samples_otherwise(library, device) -> None:
    logits = torch.zeros(8, SIZE)
    all_params = [SamplingParams(1.0, seed=seed) for seed in range(8)]
    others = [SamplingParams(1.0, seed=seed + 100) for seed in range(8)]
    assert sampled(logits, all_params, library, device) == sampled(
        logits, all_params, library, device
    )
    assert sampled(logits, all_params, library, device) != sampled(logits, others, library, device)
    alone = sampled(logits[:1], all_params[:1], library, device)
    assert alone == sampled(logits[:1], all_params[:1], library, device)
