"""Sampling from whole vocabularies: the tokens of the sampler in plain torch, whether few tokens
are kept or nearly all, and how much of a row is read for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from triton.runtime import interpreter

from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.sampling.sampler import sample

from .test_sampler import sampled

SIZE = 128_256
PLAIN = SamplingParams(temperature=1.0)
TOP_P = replace(PLAIN, top_p=0.9)


def zipf(size: int, exponent: float = 2.0) -> torch.Tensor:
    """Logits of one row, as of a text model: the likelihood falls by a power of the rank."""
    ranks = np.random.default_rng(7).permutation(size) + 1
    return torch.from_numpy(-exponent * np.log(ranks)).float()[None]


def normal(size: int, scale: float) -> torch.Tensor:
    """Logits of one row in which many tokens are about as likely."""
    drawn = np.random.default_rng(8).standard_normal((1, size))
    return torch.from_numpy(drawn * scale).float()


def assert_same(
    row: torch.Tensor, params: list[SamplingParams], device: torch.device, seed: int = 0
) -> None:
    params = [replace(it, seed=seed + i, index=5) for i, it in enumerate(params)]
    logits = row.expand(len(params), -1).contiguous()
    wanted = sample(logits, params, is_compiled=False).tokens.tolist()
    assert sampled(logits, params, device) == wanted


FILTERS = [
    TOP_P,
    replace(PLAIN, top_p=0.999),
    replace(PLAIN, top_k=40, top_p=0.95),
    replace(PLAIN, top_k=1500),
    replace(PLAIN, min_p=0.002),
    replace(PLAIN, top_p=0.99, min_p=0.0001),
]


@pytest.mark.parametrize("temperature", [0.6, 1.4])
def test_filters_of_a_peaked_row_are_those_of_the_sampler(temperature, device) -> None:
    params = [replace(it, temperature=temperature) for it in [GREEDY, PLAIN, *FILTERS]]
    assert_same(zipf(10_000), params, device)


@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_filters_of_a_flat_row_are_those_of_the_sampler(scale: float, device) -> None:
    """More tokens are kept than are searched in registers."""
    assert_same(normal(5_000, scale), [GREEDY, PLAIN, *FILTERS, replace(PLAIN, top_p=0.3)], device)


def test_tokens_as_likely_as_the_last_one_of_top_k_add_no_mass_to_top_p(device) -> None:
    row = torch.zeros(1, 400)
    row[0, 100:300:2] = 1.0
    params = [replace(PLAIN, top_k=120, top_p=p) for p in (0.3, 0.9, 0.95, 0.99) for _ in range(2)]
    assert_same(row, params, device)


def test_groups_grow_with_the_vocabulary(device) -> None:
    assert_same(zipf(270_000), [GREEDY, PLAIN, TOP_P, replace(PLAIN, top_k=20)], device)


def test_masked_tokens_are_never_sampled(device) -> None:
    row, allowed = torch.full((1, 5_000), -torch.inf), torch.tensor([17, 130, 4_999])
    row[0, allowed] = torch.tensor([0.0, 0.5, 0.3])
    kinds = [GREEDY, PLAIN, TOP_P, replace(PLAIN, top_k=2), replace(PLAIN, top_k=9)]
    params = [replace(it, seed=seed) for seed, it in enumerate(kinds)]
    alone = sample(row[:, allowed].expand(len(params), -1), params, is_compiled=False).tokens
    assert sampled(row.expand(len(params), -1), params, device) == allowed[alone].tolist()


@pytest.fixture
def num_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many numbers each load of the interpreter reads: those that no mask hides."""
    if torch.cuda.is_available():
        pytest.skip("kernels are not interpreted")
    counts: list[int] = []
    load = interpreter.InterpreterBuilder.create_masked_load

    def counting(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        counts.append(int(np.count_nonzero(mask.data)))
        return load(self, ptrs, mask, *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_masked_load", counting)
    return counts


def numbers_read(row: torch.Tensor, params: SamplingParams, counts: list[int]) -> int:
    """How many numbers are loaded to sample from a row: what a GPU's time is spent on."""
    counts.clear()
    sampled(row, [params], torch.device("cpu"))
    return sum(counts)


@pytest.mark.parametrize(
    "params",
    [PLAIN, TOP_P, replace(PLAIN, top_k=50), replace(PLAIN, top_k=50, top_p=0.95)],
    ids=["plain", "top-p", "top-k", "both"],
)
def test_filters_read_a_peaked_row_no_more_than_twice(params, num_read: list[int]) -> None:
    row = zipf(SIZE)
    greedy = numbers_read(row, GREEDY, num_read)
    assert SIZE <= greedy <= 1.05 * SIZE
    assert numbers_read(row, params, num_read) <= 2 * greedy


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_flat_row_is_read_a_few_times(scale: float, num_read: list[int]) -> None:
    assert numbers_read(normal(SIZE, scale), TOP_P, num_read) <= 8 * SIZE
