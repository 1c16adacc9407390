"""Samples tokens on the device of the logits, by GPU kernels, without waiting for the device.

Gives the same tokens and numbers as `sampler.sample`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....kernels.devices import DeviceSampler
from ....kernels.gpu.upload import uploaded
from ...api.batch import GREEDY, SamplingParams
from .fetch import Fetch
from .logprobs import MIN_TEMPERATURE, log_masses, logprobs
from .masks import packed
from .penalties import changed
from .sampler import Samples, uniforms


class DeviceSamples(NamedTuple):
    """Samples in flight. tokens: [N] int32 on the device, -1 as in `Samples`. result: gives all
    that was requested, once the fetch has waited."""

    tokens: Tensor
    result: Callable[[], Samples]


class _Settings(NamedTuple):
    """Sampling parameters of a batch, on the device. temperatures, top_ks, top_ps, min_ps, numbers:
    as in `DeviceSampler`. mask_rows, mask_bits: rows that have a mask, and its bits."""

    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    min_ps: Tensor
    numbers: Tensor
    mask_rows: Tensor
    mask_bits: Tensor


def sample_on_device(
    logits: Tensor, params: Sequence[SamplingParams], sampler: DeviceSampler, fetch: Fetch
) -> DeviceSamples:
    """Launch sampling of one token for each row of logits [N, vocabulary] (float32, not
    changed)."""
    settings = _settings(params, logits)
    free = changed(logits, params)
    is_own = free is not logits and not any(it.log_mass for it in params)
    allowed = _masked(free, settings, is_own)
    tokens = sampler(allowed, *settings[:5])
    ids, read_masses = fetch.add(tokens), log_masses(free, allowed, params, fetch)
    read_logprobs = logprobs(logits, tokens, params, fetch)

    def result() -> Samples:
        return Samples(ids.numpy().astype(np.int64), *read_logprobs(), read_masses())

    return DeviceSamples(tokens, result)


def _settings(params: Sequence[SamplingParams], logits: Tensor) -> _Settings:
    """All parameters, uploaded by one copy; of greedy rows alone, made on the device."""
    if all(it is GREEDY for it in params):
        return _greedy(len(params), logits.device)
    masks = [(row, it.mask) for row, it in enumerate(params) if it.mask is not None]
    temperatures = np.array([it.temperature for it in params])
    temperatures[(temperatures > 0) & (temperatures < MIN_TEMPERATURE)] = MIN_TEMPERATURE
    arrays = [
        temperatures.astype(np.float32).view(np.int32),
        np.array([it.top_k for it in params], np.int32),
        np.array([it.top_p for it in params], np.float32).view(np.int32),
        np.array([it.min_p for it in params], np.float32).view(np.int32),
        uniforms(params).view(np.int32),
        np.array([row for row, _ in masks], np.int32),
        packed([words for _, words in masks], logits.shape[-1]),
    ]
    settings = _Settings(*uploaded(arrays, logits.device))
    floats = ("temperatures", "top_ps", "min_ps")
    changes = {name: getattr(settings, name).view(torch.float32) for name in floats}
    return settings._replace(**changes, numbers=settings.numbers.view(torch.float64))


def _greedy(count: int, device: torch.device) -> _Settings:
    numbers = torch.zeros(count, dtype=torch.float64, device=device)
    zeros, ones = numbers.view(torch.float32)[:count], torch.ones(count, device=device)
    none = zeros.view(torch.int32)[:0]
    return _Settings(zeros, zeros.view(torch.int32), ones, zeros, numbers, none, none)


def _masked(logits: Tensor, settings: _Settings, is_own: bool) -> Tensor:
    """The logits with -inf at tokens that a mask does not allow; the same tensor where no row has a
    mask. Changed in place if is_own."""
    if not len(settings.mask_rows):
        return logits
    from ....kernels.gpu.masks import mask

    allowed = logits if is_own else logits.clone()
    mask(allowed, settings.mask_rows, settings.mask_bits)
    return allowed
