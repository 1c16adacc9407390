"""Draws: against an oracle that sorts, and independent of the batch that they stand in."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.sampling.sampler import sample, uniforms


def logits(rows: int, size: int, spread: float, seed: int = 0) -> torch.Tensor:
    noise = np.random.default_rng(seed).standard_normal((rows, size)) * spread
    return torch.from_numpy(noise.astype(np.float32))


def softmax(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def expected(row: np.ndarray, params: SamplingParams) -> int:
    """The plain way: sort, cut, renormalise, invert in token order."""
    probs = softmax(row.astype(np.float64) / params.temperature)
    order = np.argsort(-probs, kind="stable")
    kept = probs.copy()
    if params.top_k > 0:
        kept[order[params.top_k :]] = 0
    kept /= kept.sum()
    before = np.cumsum(kept[order]) - kept[order]
    kept[order[before >= params.top_p]] = 0
    kept[probs < params.min_p * probs.max()] = 0
    sums = np.cumsum(kept)
    return int(np.searchsorted(sums, uniforms([params])[0] * sums[-1], side="right"))


def random_params(random: np.random.Generator) -> SamplingParams:
    return SamplingParams(
        temperature=float(random.choice([0.3, 1.0, 2.0])),
        seed=int(random.integers(2**62)),
        index=int(random.integers(100)),
        top_k=int(random.choice([-1, -1, 1, 5, 100, 2000])),
        top_p=float(random.choice([1.0, 0.99, 0.9, 0.5])),
        min_p=float(random.choice([0.0, 0.0, 0.05])),
    )


@pytest.mark.parametrize("size", [7, 300, 5000])
@pytest.mark.parametrize("spread", [0.3, 2.0, 6.0])
def test_samples_are_those_of_an_oracle_that_sorts(size: int, spread: float) -> None:
    random = np.random.default_rng(size)
    for seed in range(12):
        rows = logits(4, size, spread, seed)
        params = [random_params(random) for _ in range(4)]
        wanted = [expected(row, it) for row, it in zip(rows.numpy(), params, strict=True)]
        assert sample(rows, params).tokens.tolist() == wanted


def test_greedy_rows_take_the_likeliest_token_whatever_the_filters() -> None:
    rows = logits(3, 50, 2.0)
    params = [
        GREEDY,
        SamplingParams(top_k=5, top_p=0.1),
        SamplingParams(temperature=1.0, top_k=1, seed=9),
    ]
    assert sample(rows, params).tokens.tolist() == rows.argmax(-1).tolist()


def test_a_sample_does_not_depend_on_its_batch() -> None:
    random = np.random.default_rng(3)
    rows, params = logits(16, 700, 1.5), [random_params(random) for _ in range(16)]
    together = sample(rows, params).tokens.tolist()
    alone = [int(sample(rows[i : i + 1], [params[i]]).tokens[0]) for i in range(16)]
    assert together == alone


def test_the_logits_are_left_as_they_were() -> None:
    rows = logits(2, 90, 1.0)
    before = rows.clone()
    sample(
        rows, [SamplingParams(logit_bias=((3, 5.0),)), SamplingParams(temperature=1.0, top_p=0.5)]
    )
    assert torch.equal(rows, before)


def test_frequencies_are_the_distribution() -> None:
    row = torch.log(torch.tensor([[0.5, 0.25, 0.2, 0.05]]))
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in range(4000)]
    counts = np.bincount(sample(row.expand(4000, 4).contiguous(), params).tokens, minlength=4)
    assert np.abs(counts / 4000 - [0.5, 0.25, 0.2, 0.05]).max() < 0.02


def test_numbers_are_even_and_differ_by_seed_and_index() -> None:
    numbers = uniforms([SamplingParams(seed=s, index=i) for s in range(100) for i in range(100)])
    assert len(set(numbers.tolist())) == 10_000
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, 10, (0, 1))[0] - 1000).max() < 120


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    row = torch.tensor([[2.0, 1.5, -1.0, -1.2]])
    params = SamplingParams(
        repetition_penalty=2.0,
        generated=np.array([0], np.int32),
        prompt=np.array([2], np.int32),
        logprobs=0,
    )
    assert sample(row, [params]).tokens.tolist() == [1]


def test_frequency_and_presence_penalties_count_generated_tokens() -> None:
    row = torch.tensor([[3.0, 2.9, 0.0]])
    once = np.array([0], np.int32)
    thrice = np.array([0, 0, 0, 1], np.int32)
    cases = {
        (0.0, 0.05): ([once], [0]),
        (0.0, 0.2): ([once], [1]),
        (0.1, 0.0): ([thrice], [1]),
    }
    for (frequency, presence), ([generated], wanted) in cases.items():
        params = SamplingParams(
            frequency_penalty=frequency, presence_penalty=presence, generated=generated
        )
        assert sample(row, [params]).tokens.tolist() == wanted


def test_bias_moves_and_bans_exclude() -> None:
    row = torch.tensor([[3.0, 2.0, 1.0]])
    assert sample(row, [SamplingParams(logit_bias=((2, 5.0),))]).tokens.tolist() == [2]
    assert sample(row, [SamplingParams(banned=(0,))]).tokens.tolist() == [1]
    params = [SamplingParams(temperature=5.0, seed=seed, banned=(1,)) for seed in range(200)]
    assert 1 not in sample(row.expand(200, 3).contiguous(), params).tokens


def test_log_probabilities_are_the_models_own_with_top_logprobs_best_first() -> None:
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    params = [SamplingParams(logit_bias=((2, 50.0),), logprobs=2), SamplingParams()]
    samples = sample(probs.log(), params)
    assert samples.tokens.tolist() == [2, 2]
    assert samples.logprobs[0] == pytest.approx(np.log(0.2), abs=1e-6)
    assert np.isnan(samples.logprobs[1])
    assert [token for token, _ in samples.tops[0]] == [0, 1]
    assert samples.tops[0][0][1] == pytest.approx(np.log(0.5), abs=1e-6)
    assert samples.tops[1] == ()


def test_a_row_that_is_not_finite_gives_minus_one_and_harms_no_other() -> None:
    rows = logits(3, 40, 1.0)
    rows[1, 7] = torch.nan
    params = [SamplingParams(temperature=1.0, seed=1)] * 3
    samples = sample(rows, params).tokens.tolist()
    assert samples[1] == -1
    assert samples[0] == expected(rows[0].numpy(), params[0])
    assert samples[2] == expected(rows[2].numpy(), params[2])


def test_a_row_whose_every_token_is_banned_gives_minus_one() -> None:
    params = [
        SamplingParams(banned=(0, 1, 2)),
        SamplingParams(temperature=1.0, banned=(0, 1, 2)),
        SamplingParams(banned=(2,)),
    ]
    assert sample(logits(3, 3, 1.0), params).tokens.tolist()[:2] == [-1, -1]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300])
def test_the_lowest_temperatures_are_greedy(temperature: float) -> None:
    rows = logits(5, 60, 4.0)
    for params in (
        SamplingParams(temperature=temperature),
        SamplingParams(temperature=temperature, top_p=0.9),
    ):
        assert sample(rows, [params] * 5).tokens.tolist() == rows.argmax(-1).tolist()


def test_the_share_that_a_mask_allows_is_of_the_sampled_distribution() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 0.5], [0.0, 1.0, 0.0, 2.0], [3.0, 1.0, 2.0, 0.0]])
    mask = np.array([0b0110], np.int32)
    warm = SamplingParams(temperature=0.5, seed=3, mask=mask, log_mass=True, logit_bias=((1, 1.0),))
    cold = SamplingParams(mask=mask, log_mass=True)
    silent = SamplingParams(temperature=1.0, seed=4, mask=mask)
    found = sample(logits, [warm, cold, silent]).log_masses
    bent = torch.tensor([1.0, 3.0, 3.0, 0.5]).double() / 0.5
    first = float(bent[1:3].logsumexp(-1) - bent.logsumexp(-1))
    plain = logits[1].double()
    second = float(plain[1:3].logsumexp(-1) - plain.logsumexp(-1))
    assert found.tolist() == [pytest.approx(first), pytest.approx(second), 0.0]
    assert len(sample(logits, [silent] * 3).log_masses) == 0


def adversarial(size: int, seed: int) -> torch.Tensor:
    """Rows that are flat, one-hot, full of ties, nearly flat, masked, of huge spread and of two
    levels."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal((8, size))
    rows = np.stack(
        [
            np.zeros(size),
            np.where(np.arange(size) == size // 2, 30.0, 0.0),
            np.round(noise[2]),
            noise[3] * 1e-4,
            np.where(random.random(size) < 0.9, -np.inf, noise[4]),
            noise[5] * 1e3,
            np.where(noise[6] > 1, 1.0, 0.0),
            np.where(np.arange(size) == 3, 0.0, -np.inf),
        ]
    )
    return torch.from_numpy(rows.astype(np.float32))


@pytest.mark.parametrize("size", [5, 128, 129, 3000, 20_000])
@pytest.mark.parametrize("kind", ["random", "adversarial"])
def test_compiled_loops_sample_the_tokens_of_the_plain_way(size: int, kind: str) -> None:
    pytest.importorskip("numba")
    random = np.random.default_rng(size)
    for seed in range(8):
        spread = float(random.choice([0.05, 1.0, 3.0]))
        rows = logits(8, size, spread, seed) if kind == "random" else adversarial(size, seed)
        banned = tuple(range(0, size, 7)) if size > 5 else ()
        params = [replace(random_params(random), banned=banned[:-1]) for _ in range(8)]
        compiled = sample(rows, params, is_compiled=True).tokens
        assert compiled.tolist() == sample(rows, params, is_compiled=False).tokens.tolist()


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 1e-3, 0.05, 50.0])
def test_compiled_loops_sample_the_same_at_any_temperature(temperature: float) -> None:
    pytest.importorskip("numba")
    rows = torch.cat((logits(24, 4000, 3.0, 5), adversarial(4000, 5)))
    params = [
        SamplingParams(temperature, seed, top_k=top_k, top_p=top_p, min_p=min_p)
        for seed, (top_k, top_p, min_p) in enumerate(
            product((-1, 3, 1500, 4000), (1.0, 0.9, 0.0, 0.2), (0.0, 0.5))
        )
    ]
    ways = [sample(rows, params, is_compiled=is_compiled).tokens for is_compiled in (True, False)]
    moved = np.abs(ways[0] - ways[1]).tolist()
    assert moved.pop(24 + 3) <= 1  # nearly flat: rounding decides which token is the last one kept
    assert moved == [0] * 31


def test_without_numba_the_plain_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, params = (
        logits(4, 500, 2.0),
        [SamplingParams(1.0, seed=seed, top_p=0.9) for seed in range(4)],
    )
    usual = sample(rows, params).tokens.tolist()
    with monkeypatch.context() as patch:
        patch.setattr("forkroot.core.model.sampling.sampler.compiled_sampler", lambda: None)
        assert sample(rows, params).tokens.tolist() == usual
