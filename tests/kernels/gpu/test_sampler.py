"""Masks and draws against the sampler in plain torch: the very tokens that it draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.sampling.sampler import sample, uniforms
from forkroot.kernels.gpu.masks import mask
from forkroot.kernels.gpu.sampler import sample_tokens

SIZE = 2500


def sampled(
    logits: torch.Tensor, all_params: list[SamplingParams], device: torch.device
) -> list[int]:
    def floats(name: str) -> torch.Tensor:
        return torch.tensor([getattr(it, name) for it in all_params], device=device)

    found = sample_tokens(
        logits.to(device),
        floats("temperature").float(),
        floats("top_k").int(),
        floats("top_p").float(),
        floats("min_p").float(),
        torch.from_numpy(uniforms(all_params)).to(device),
    )
    return found.tolist()


def test_every_filter_samples_what_the_sampler_samples(device) -> None:
    rng = np.random.default_rng(0)
    plain = SamplingParams(temperature=1.0)
    all_params = [
        GREEDY,
        plain,
        replace(plain, top_k=1),
        replace(plain, top_k=50),
        replace(plain, top_k=SIZE + 1),
        replace(plain, top_p=0.5),
        replace(plain, top_p=0.9, top_k=20),
        replace(plain, min_p=0.1),
        replace(plain, top_p=0.95, top_k=300, min_p=0.01, temperature=2.0),
        replace(plain, temperature=0.05, top_p=0.7),
    ]
    all_params = [replace(it, seed=int(rng.integers(2**40)), index=3) for it in all_params]
    logits = torch.from_numpy(rng.standard_normal((len(all_params), SIZE)).astype(np.float32)) * 2
    assert sampled(logits, all_params, device) == sample(logits, all_params).tokens.tolist()


def test_equal_weights_are_kept_together(device) -> None:
    logits = torch.zeros(3, 64)
    all_params = [SamplingParams(temperature=1.0, top_k=4, seed=seed) for seed in (1, 2, 3)]
    assert sampled(logits, all_params, device) == sample(logits, all_params).tokens.tolist()


def test_a_row_without_sound_numbers_gives_minus_one(device) -> None:
    logits = torch.zeros(4, 100)
    logits[0, 7] = torch.nan
    logits[1] = -torch.inf
    logits[2, 50] = torch.inf
    logits[3, 99] = 1.0
    assert sampled(logits, [GREEDY] * 4, device) == [-1, -1, -1, 99]
    assert sampled(logits, [SamplingParams(1.0, top_k=1)] * 4, device) == [-1, -1, -1, 99]


def test_a_mask_hides_what_its_bits_do_not_allow(device) -> None:
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(rng.standard_normal((3, 100)).astype(np.float32))
    words = rng.integers(-(2**31), 2**31, (2, 3), dtype=np.int32)
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(bool)
    on_device = logits.clone().to(device)
    mask(on_device, torch.tensor([2, 0], device=device), torch.from_numpy(words).to(device))
    for row, allowed in ((2, bits[0]), (0, bits[1])):
        hidden = torch.from_numpy(np.append(~allowed, [True] * 4))
        assert torch.equal(on_device[row].cpu(), logits[row].masked_fill(hidden, -torch.inf))
    assert torch.equal(on_device[1].cpu(), logits[1])
