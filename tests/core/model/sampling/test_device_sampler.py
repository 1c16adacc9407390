"""Draws where the logits are against the sampler's: the same tokens and the same numbers, whatever
they ask for, and nothing is waited for."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():  # before Triton is first imported
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.sampling import device_sampler
from forkroot.core.model.sampling.device_sampler import sample_on_device
from forkroot.core.model.sampling.fetch import Fetch
from forkroot.core.model.sampling.sampler import Samples, sample
from forkroot.kernels.devices import sampler_for
from forkroot.kernels.gpu.upload import uploaded

SIZE = 300


@pytest.fixture
def device() -> torch.device:
    """A GPU, or a CPU that plays one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def sampled_on_device(
    logits: torch.Tensor, params: Sequence[SamplingParams], device: torch.device
) -> Samples:
    sampler = sampler_for(device, "triton")
    assert sampler is not None
    fetch, before = Fetch(device), logits.clone()
    on_device = logits.to(device)
    samples = sample_on_device(on_device, params, sampler, fetch)
    fetch.seal()
    fetch.wait()
    assert torch.equal(on_device.cpu().nan_to_num(), before.nan_to_num())
    found = samples.result()
    assert samples.tokens.tolist() == found.tokens.tolist()
    return found


def some_mask(rng: np.random.Generator, num_words: int = 10) -> np.ndarray:
    return rng.integers(-(2**31), 2**31, num_words).astype(np.int32)


def random_params(rng: np.random.Generator) -> SamplingParams:
    """Any wishes together; nothing at all in a third of the cases."""

    def maybe(value, other):
        return value if rng.random() < 0.4 else other

    if rng.random() < 0.3:
        return GREEDY
    generated = rng.integers(0, SIZE, rng.integers(1, 30)).astype(np.int32)
    prompt = rng.integers(0, SIZE, rng.integers(1, 30)).astype(np.int32)
    repetition = maybe(1.3, 1.0)
    frequency, presence = maybe(0.4, 0.0), maybe(0.6, 0.0)
    mask = maybe(some_mask(rng, int(rng.choice([6, 10]))), None)
    return SamplingParams(
        temperature=maybe(float(rng.choice([1e-7, 0.7, 1.5])), 0.0),
        seed=int(rng.integers(2**50)),
        index=int(rng.integers(40)),
        top_k=maybe(7, -1),
        top_p=maybe(0.8, 1.0),
        min_p=maybe(0.05, 0.0),
        frequency_penalty=frequency,
        presence_penalty=presence,
        repetition_penalty=repetition,
        logit_bias=maybe(((3, 4.0), (17, -100.0), (99, 2.5)), ()),
        banned=maybe((2, 250), ()) if mask is None else (),
        generated=generated if frequency or presence or repetition != 1 else None,
        prompt=prompt if repetition != 1 else None,
        mask=mask,
        logprobs=maybe(int(rng.integers(0, 4)), None),
        log_mass=mask is not None and bool(rng.random() < 0.5),
    )


def assert_same(found: Samples, wanted: Samples) -> None:
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert found.tokens.dtype == np.int64
    assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-5, nan_ok=True)
    assert len(found.log_masses) == len(wanted.log_masses)
    assert found.log_masses == pytest.approx(wanted.log_masses, abs=1e-5)
    for mine, other in zip(found.tops, wanted.tops, strict=True):
        assert [token for token, _ in mine] == [token for token, _ in other]
        assert [log for _, log in mine] == pytest.approx([log for _, log in other], abs=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_all_results_are_those_of_the_sampler(seed, device) -> None:
    rng = np.random.default_rng(seed)
    params = [random_params(rng) for _ in range(int(rng.integers(1, 9)))]
    logits = torch.from_numpy(rng.standard_normal((len(params), SIZE)).astype(np.float32)) * 3
    assert_same(
        sampled_on_device(logits, params, device), sample(logits, params, is_compiled=False)
    )


def test_rows_that_are_not_finite_or_allow_nothing_harm_no_other_row(device) -> None:
    nothing = np.zeros(10, np.int32)
    params = [
        SamplingParams(1.0, logprobs=1),
        SamplingParams(mask=nothing, log_mass=True),
        SamplingParams(1.0, generated=np.array([4], np.int32), presence_penalty=1.0, logprobs=2),
        SamplingParams(banned=tuple(range(SIZE)), logprobs=0),
    ]
    logits = torch.randn(4, SIZE, generator=torch.Generator().manual_seed(1))
    logits[0, 7] = torch.nan
    found, wanted = sampled_on_device(logits, params, device), sample(logits, params)
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert [token < 0 for token in found.tokens] == [True, True, False, True]
    assert found.logprobs[2] == pytest.approx(wanted.logprobs[2], abs=1e-5)
    assert found.log_masses[1] == -np.inf


def test_nothing_of_the_device_is_read_before_the_result_is_requested() -> None:
    """Meta tensors have no numbers: whatever reads one raises."""
    nowhere = torch.device("meta")
    ids = np.array([1, 2, 2], np.int32)
    params = [
        GREEDY,
        SamplingParams(1.0, seed=1, top_p=0.9, logprobs=2),
        SamplingParams(1.0, frequency_penalty=0.5, presence_penalty=0.5, generated=ids, logprobs=0),
        SamplingParams(repetition_penalty=1.5, generated=ids, prompt=ids, logit_bias=((1, 2.0),)),
        SamplingParams(banned=(1, 2)),
    ]

    def draw(logits: torch.Tensor, *settings: torch.Tensor) -> torch.Tensor:
        assert {it.device for it in (logits, *settings)} == {nowhere}
        return torch.empty(len(logits), dtype=torch.int32, device=nowhere)

    samples = sample_on_device(torch.empty(5, SIZE, device=nowhere), params, draw, Fetch(nowhere))
    assert samples.tokens.shape == (5,)
    with pytest.raises(TypeError, match="meta"):
        samples.result()


def test_greedy_rows_alone_need_no_upload(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_uploads, seen = 0, []

    def counted(*args: object) -> list[torch.Tensor]:
        nonlocal num_uploads
        num_uploads += 1
        return uploaded(*args)

    def sampler(logits: torch.Tensor, *settings: torch.Tensor) -> torch.Tensor:
        seen.append(settings)
        return torch.zeros(len(logits), dtype=torch.int32, device=logits.device)

    monkeypatch.setattr(device_sampler, "uploaded", counted)
    logits = torch.zeros(3, SIZE, device=device)
    for params in ([GREEDY] * 3, [SamplingParams(), GREEDY, GREEDY]):
        sample_on_device(logits, params, sampler, Fetch(device))
    assert num_uploads == 1
    for made, sent in zip(*seen, strict=True):
        assert made.dtype == sent.dtype
        assert made.device == sent.device
        assert made.shape == sent.shape
    temperatures, top_ks, top_ps, min_ps, _ = seen[0]
    assert not any(it.any() for it in (temperatures, top_ks, min_ps))
    assert top_ps.tolist() == [1.0, 1.0, 1.0]
