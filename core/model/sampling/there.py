"""Draws tokens where the logits are, by kernels of a GPU, and waits for nothing.

The same tokens and numbers as `sampler.sample` gives, whatever the draws ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....kernels.devices import DeviceSampler
from ....kernels.gpu.upload import uploaded
from ...api.batch import Draw, Floats, Ints
from .fetch import Fetch
from .penalties import changed
from .sampler import COLDEST, Drawn, Top, rivals, tops_of, uniforms


class Begun(NamedTuple):
    """tokens: [N] int32 on the device, -1 as in `Drawn`. told: all that was asked for, once the
    fetch has waited."""

    tokens: Tensor
    told: Callable[[], Drawn]


class _Settings(NamedTuple):
    """What draws ask for, on the device. temperatures, top_ks, top_ps, min_ps, numbers: as
    `DeviceSampler` has them. masked, words: rows that have a mask, and its bits. told: rows whose
    log-probabilities are wanted. massed, scales: rows whose log-masses are, and at which
    temperature (float64)."""

    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    min_ps: Tensor
    numbers: Tensor
    masked: Tensor
    words: Tensor
    told: Tensor
    massed: Tensor
    scales: Tensor


def sample_there(logits: Tensor, draws: Sequence[Draw], draw: DeviceSampler, fetch: Fetch) -> Begun:
    """Begin to draw a token for each row of logits [N, vocabulary] (float32, left as they are)."""
    there = _settings(draws, logits)
    free = changed(logits, draws)
    allowed = _masked(free, there, is_own=free is not logits and not len(there.massed))
    tokens = draw(allowed, *there[:5])
    ids, masses = fetch.add(tokens), _log_masses(free, allowed, draws, there, fetch)
    logprobs = _logprobs(logits, tokens, draws, there, fetch)

    def told() -> Drawn:
        return Drawn(ids.numpy().astype(np.int64), *logprobs(), masses())

    return Begun(tokens, told)


def _settings(draws: Sequence[Draw], logits: Tensor) -> _Settings:
    """All of it by one copy."""
    masks = [(row, it.mask) for row, it in enumerate(draws) if it.mask is not None]
    massed = _massed(draws)
    colds = [max(it.temperature, COLDEST) if it.temperature > 0 else 0.0 for it in draws]
    arrays = [
        np.array(colds, np.float32).view(np.int32),
        np.array([it.top_k for it in draws], np.int32),
        np.array([it.top_p for it in draws], np.float32).view(np.int32),
        np.array([it.min_p for it in draws], np.float32).view(np.int32),
        uniforms(draws).view(np.int32),
        np.array([row for row, _ in masks], np.int32),
        _joined([words for _, words in masks], -(-logits.shape[-1] // 32)),
        np.array(_told(draws), np.int32),
        np.array(massed, np.int32),
        np.array([colds[row] or 1.0 for row in massed], np.float64).view(np.int32),
    ]
    there = _Settings(*uploaded(arrays, logits.device))
    floats = ("temperatures", "top_ps", "min_ps")
    changes = {name: getattr(there, name).view(torch.float32) for name in floats}
    changes |= {name: getattr(there, name).view(torch.float64) for name in ("numbers", "scales")}
    return there._replace(**changes)


def _masked(logits: Tensor, there: _Settings, is_own: bool) -> Tensor:
    """The logits themselves if no draw has a mask, else with -inf where one does not allow; in
    place if they are our own."""
    if not len(there.masked):
        return logits
    from ....kernels.gpu.masks import mask

    allowed = logits if is_own else logits.clone()
    mask(allowed, there.masked, there.words)
    return allowed


def _log_masses(
    free: Tensor, allowed: Tensor, draws: Sequence[Draw], there: _Settings, fetch: Fetch
) -> Callable[[], Floats]:
    rows = _massed(draws)
    if not rows:
        return lambda: np.empty(0, np.float32)
    some, whole = (
        (logits.index_select(0, there.massed).double() / there.scales[:, None]).logsumexp(-1)
        for logits in (allowed, free)
    )
    found = fetch.add((some - whole).float())

    def told() -> Floats:
        masses = np.zeros(len(draws), np.float32)
        masses[rows] = found.numpy()
        return masses

    return told


def _logprobs(
    logits: Tensor, tokens: Tensor, draws: Sequence[Draw], there: _Settings, fetch: Fetch
) -> Callable[[], tuple[Floats, tuple[Top, ...]]]:
    """Of the tokens, and their rivals, under the model's own distribution."""
    rows = _told(draws)
    if not rows:
        return lambda: (np.full(len(draws), np.nan, np.float32), ((),) * len(draws))
    counts = [draws[row].logprobs or 0 for row in rows]
    own = logits.index_select(0, there.told)
    total = own.logsumexp(-1, keepdim=True)
    drawn = tokens.index_select(0, there.told).clamp(min=0).long()
    chosen = fetch.add((own.gather(-1, drawn[:, None]) - total)[:, 0])
    ids, logs = map(fetch.add, rivals(own, total, max(counts)))

    def told() -> tuple[Floats, tuple[Top, ...]]:
        logprobs = np.full(len(draws), np.nan, np.float32)
        logprobs[rows] = chosen.numpy()
        tops: list[Top] = [()] * len(draws)
        for row, count, top in zip(rows, counts, tops_of(ids, logs), strict=True):
            tops[row] = top[:count]
        return logprobs, tuple(tops)

    return told


def _told(draws: Sequence[Draw]) -> list[int]:
    """Rows whose log-probabilities are wanted."""
    return [row for row, draw in enumerate(draws) if draw.logprobs is not None]


def _massed(draws: Sequence[Draw]) -> list[int]:
    """Rows whose log-masses are wanted."""
    return [row for row, draw in enumerate(draws) if draw.log_mass]


def _joined(masks: Sequence[Ints], num_words: int) -> Ints:
    """[masks, words]; past a mask's end nothing is allowed."""
    words = np.zeros((len(masks), num_words), np.int32)
    for row, mask in zip(words, masks, strict=True):
        row[: len(mask)] = mask[: len(row)]
    return words
