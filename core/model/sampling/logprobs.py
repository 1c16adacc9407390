"""Log-probabilities and log-masses beside the sampled tokens of a batch, on the logits' device.

Nothing waits for the device: each function returns a function that gives the result once the fetch
has waited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from torch import Tensor

from ...api.batch import Floats, SamplingParams
from ..inputs import to_tensor
from .fetch import Fetch

Top: TypeAlias = tuple[tuple[int, float], ...]

MIN_TEMPERATURE = 1e-6


def logprobs(
    logits: Tensor, tokens: Tensor, params: Sequence[SamplingParams], fetch: Fetch
) -> Callable[[], tuple[Floats, tuple[Top, ...]]]:
    """Log-probabilities of tokens [N] and the top ones, under the model's own distribution."""
    rows = [row for row, it in enumerate(params) if it.logprobs is not None]
    found = np.full(len(params), np.nan, np.float32)
    tops: list[Top] = [()] * len(params)
    if not rows:
        return lambda: (found, tuple(tops))
    index = to_tensor(np.array(rows), logits.device)
    counts = [params[row].logprobs or 0 for row in rows]
    own = logits.index_select(0, index)
    total = own.logsumexp(-1, keepdim=True)
    sampled = tokens.index_select(0, index).clamp(min=0).long()
    chosen = fetch.add((own.gather(-1, sampled[:, None]) - total)[:, 0])
    ids, logs = map(fetch.add, top_logprobs(own, total, max(counts)))

    def result() -> tuple[Floats, tuple[Top, ...]]:
        found[rows] = chosen.numpy(force=True)
        for row, count, top in zip(rows, counts, top_logprob_pairs(ids, logs), strict=True):
            tops[row] = top[:count]
        return found, tuple(tops)

    return result


def log_masses(
    free: Tensor, allowed: Tensor, params: Sequence[SamplingParams], fetch: Fetch
) -> Callable[[], Floats]:
    """The logarithms of the shares of the free logits' [N, vocabulary] mass that are allowed, as in
    `Samples`."""
    rows = [row for row, it in enumerate(params) if it.log_mass]
    if not rows:
        return lambda: np.empty(0, np.float32)
    temperatures = (params[row].temperature for row in rows)
    values = [max(it, MIN_TEMPERATURE) if it else 1.0 for it in temperatures]
    index, scales = (to_tensor(np.array(it), free.device) for it in (rows, values))
    some, whole = (
        (logits.index_select(0, index).double() / scales[:, None]).logsumexp(-1)
        for logits in (allowed, free)
    )
    found = fetch.add((some - whole).float())

    def result() -> Floats:
        masses = np.zeros(len(params), np.float32)
        masses[rows] = found.numpy(force=True)
        return masses

    return result


def top_logprobs(logits: Tensor, total: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The likeliest tokens of each row of logits [N, vocabulary] and their log-probabilities, best
    first, both [N, count]. total: [N, 1] logsumexp of each row."""
    best, ids = logits.topk(min(count, logits.shape[-1]))
    return ids, best - total


def top_logprob_pairs(ids: Tensor, logprobs: Tensor) -> list[Top]:
    """The results of `top_logprobs` as pairs, for each row."""
    pairs = zip(ids.tolist(), logprobs.tolist(), strict=True)
    return [tuple(zip(*pair, strict=True)) for pair in pairs]
