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
from ...api.batch import Floats, Ints, SamplingParams
from .fetch import Fetch
from .penalties import changed
from .sampler import MIN_TEMPERATURE, Samples, Top, top_logprob_pairs, top_logprobs, uniforms


class DeviceSamples(NamedTuple):
    """Samples in flight. tokens: [N] int32 on the device, -1 as in `Samples`. result: gives all
    that was requested, once the fetch has waited."""

    tokens: Tensor
    result: Callable[[], Samples]


class _Settings(NamedTuple):
    """Sampling parameters of a batch, on the device. temperatures, top_ks, top_ps, min_ps, numbers:
    as in `DeviceSampler`. mask_rows, mask_bits: rows that have a mask, and its bits. logprob_rows:
    rows whose log-probabilities are requested. log_mass_rows, log_mass_scales: rows whose
    log-masses are, and at which temperature (float64)."""

    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    min_ps: Tensor
    numbers: Tensor
    mask_rows: Tensor
    mask_bits: Tensor
    logprob_rows: Tensor
    log_mass_rows: Tensor
    log_mass_scales: Tensor


def sample_on_device(
    logits: Tensor, params: Sequence[SamplingParams], sampler: DeviceSampler, fetch: Fetch
) -> DeviceSamples:
    """Launch sampling of one token for each row of logits [N, vocabulary] (float32, not
    changed)."""
    settings = _settings(params, logits)
    free = changed(logits, params)
    allowed = _masked(free, settings, is_own=free is not logits and not len(settings.log_mass_rows))
    tokens = sampler(allowed, *settings[:5])
    ids, masses = fetch.add(tokens), _log_masses(free, allowed, params, settings, fetch)
    logprobs = _logprobs(logits, tokens, params, settings, fetch)

    def result() -> Samples:
        return Samples(ids.numpy().astype(np.int64), *logprobs(), masses())

    return DeviceSamples(tokens, result)


def _settings(params: Sequence[SamplingParams], logits: Tensor) -> _Settings:
    """All parameters, uploaded by one copy."""
    masks = [(row, it.mask) for row, it in enumerate(params) if it.mask is not None]
    log_mass_rows = _log_mass_rows(params)
    temperatures = [
        max(it.temperature, MIN_TEMPERATURE) if it.temperature > 0 else 0.0 for it in params
    ]
    arrays = [
        np.array(temperatures, np.float32).view(np.int32),
        np.array([it.top_k for it in params], np.int32),
        np.array([it.top_p for it in params], np.float32).view(np.int32),
        np.array([it.min_p for it in params], np.float32).view(np.int32),
        uniforms(params).view(np.int32),
        np.array([row for row, _ in masks], np.int32),
        _packed([words for _, words in masks], -(-logits.shape[-1] // 32)),
        np.array(_logprob_rows(params), np.int32),
        np.array(log_mass_rows, np.int32),
        np.array([temperatures[row] or 1.0 for row in log_mass_rows], np.float64).view(np.int32),
    ]
    settings = _Settings(*uploaded(arrays, logits.device))
    floats = ("temperatures", "top_ps", "min_ps")
    changes = {name: getattr(settings, name).view(torch.float32) for name in floats}
    changes |= {
        name: getattr(settings, name).view(torch.float64) for name in ("numbers", "log_mass_scales")
    }
    return settings._replace(**changes)


def _masked(logits: Tensor, settings: _Settings, is_own: bool) -> Tensor:
    """The logits with -inf at tokens that a mask does not allow; the same tensor where no row has a
    mask. Changed in place if is_own."""
    if not len(settings.mask_rows):
        return logits
    from ....kernels.gpu.masks import mask

    allowed = logits if is_own else logits.clone()
    mask(allowed, settings.mask_rows, settings.mask_bits)
    return allowed


def _log_masses(
    free: Tensor,
    allowed: Tensor,
    params: Sequence[SamplingParams],
    settings: _Settings,
    fetch: Fetch,
) -> Callable[[], Floats]:
    rows = _log_mass_rows(params)
    if not rows:
        return lambda: np.empty(0, np.float32)
    some, whole = (
        (
            logits.index_select(0, settings.log_mass_rows).double()
            / settings.log_mass_scales[:, None]
        ).logsumexp(-1)
        for logits in (allowed, free)
    )
    found = fetch.add((some - whole).float())

    def result() -> Floats:
        masses = np.zeros(len(params), np.float32)
        masses[rows] = found.numpy()
        return masses

    return result


def _logprobs(
    logits: Tensor,
    tokens: Tensor,
    params: Sequence[SamplingParams],
    settings: _Settings,
    fetch: Fetch,
) -> Callable[[], tuple[Floats, tuple[Top, ...]]]:
    """Log-probabilities of the tokens and the top ones, under the model's own distribution."""
    rows = _logprob_rows(params)
    if not rows:
        return lambda: (np.full(len(params), np.nan, np.float32), ((),) * len(params))
    counts = [params[row].logprobs or 0 for row in rows]
    own = logits.index_select(0, settings.logprob_rows)
    total = own.logsumexp(-1, keepdim=True)
    sampled = tokens.index_select(0, settings.logprob_rows).clamp(min=0).long()
    chosen = fetch.add((own.gather(-1, sampled[:, None]) - total)[:, 0])
    ids, logs = map(fetch.add, top_logprobs(own, total, max(counts)))

    def result() -> tuple[Floats, tuple[Top, ...]]:
        logprobs = np.full(len(params), np.nan, np.float32)
        logprobs[rows] = chosen.numpy()
        tops: list[Top] = [()] * len(params)
        for row, count, top in zip(rows, counts, top_logprob_pairs(ids, logs), strict=True):
            tops[row] = top[:count]
        return logprobs, tuple(tops)

    return result


def _logprob_rows(params: Sequence[SamplingParams]) -> list[int]:
    """Rows whose log-probabilities are requested."""
    return [row for row, sampler in enumerate(params) if sampler.logprobs is not None]


def _log_mass_rows(params: Sequence[SamplingParams]) -> list[int]:
    """Rows whose log-masses are requested."""
    return [row for row, sampler in enumerate(params) if sampler.log_mass]


def _packed(masks: Sequence[Ints], num_words: int) -> Ints:
    """[masks, words] bits; tokens past the end of a mask are not allowed."""
    words = np.zeros((len(masks), num_words), np.int32)
    for row, mask in zip(words, masks, strict=True):
        row[: len(mask)] = mask[: len(row)]
    return words
