"""Draws tokens from logits, a whole batch at once.

The vocabulary is never sorted: a nucleus lies in the few likeliest tokens nearly always, and where
it does not its threshold is found by bisection. Each row's random number depends on its own seed
and index alone, and is spent by inverting the distribution in token order, so that what is drawn
for a sequence does not depend on its batch. Order of the filters as in `transformers`: penalties
and bias, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .batch import Draw, Floats, Longs

_LADDER = (64, 1024)
_BLOCK = 256
_BISECTIONS = 48
_OFF = 2**31  # a top_k past any vocabulary


@dataclass(frozen=True, slots=True)
class Drawn:
    """tokens: [N], -1 where a row's logits are no numbers. logprobs: [N] under the model's own
    distribution, NaN where not asked for. tops: the best rivals of those that asked."""

    tokens: Longs
    logprobs: Floats
    tops: tuple[tuple[tuple[int, float], ...], ...]


def sample(logits: Tensor, draws: Sequence[Draw]) -> Drawn:
    """Draw one token for each row of logits [N, vocabulary] (float32, left as they are)."""
    is_finite = torch.isfinite(logits.sum(-1))
    changed = _changed(logits, draws)
    tokens = changed.argmax(-1)
    rows = [row for row, draw in enumerate(draws) if draw.temperature > 0]
    if rows:
        drawn = _draw(changed[rows], [draws[row] for row in rows])
        tokens[torch.tensor(rows, device=tokens.device)] = drawn
    logprobs, tops = _logprobs(logits, tokens, draws)
    chosen: Longs = torch.where(is_finite, tokens, -1).numpy(force=True)
    return Drawn(chosen, logprobs, tops)


def uniforms(draws: Sequence[Draw]) -> np.ndarray:
    """A number in [0, 1) for each draw, a function of its seed and index (SplitMix64)."""
    with np.errstate(over="ignore"):
        seeds = np.array([draw.seed for draw in draws], np.uint64)
        steps = np.array([draw.index + 1 for draw in draws], np.uint64)
        x = _mix(seeds) + steps * np.uint64(0x9E3779B97F4A7C15)
        numbers: np.ndarray = (_mix(x) >> np.uint64(11)) * 2.0**-53
        return numbers


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


# --- penalties, bias, bans -----------------------------------------------------------------------


def _changed(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """The logits, or a copy where a row is changed."""
    rows = [row for row, draw in enumerate(draws) if _is_changing(draw)]
    if not rows:
        return logits
    logits = logits.clone()
    for row in rows:
        _change(logits[row], draws[row])
    return logits


def _is_changing(draw: Draw) -> bool:
    return bool(draw.generated is not None or draw.logit_bias or draw.banned)


def _change(row: Tensor, draw: Draw) -> None:
    if draw.repetition_penalty != 1.0 and draw.generated is not None:
        parts = [part for part in (draw.prompt, draw.generated) if part is not None]
        seen = torch.from_numpy(np.unique(np.concatenate(parts)).astype(np.int64)).to(row.device)
        values = row[seen]
        penalty = draw.repetition_penalty
        row[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if draw.generated is not None and len(draw.generated):
        ids, counts = np.unique(draw.generated, return_counts=True)
        penalties = draw.frequency_penalty * counts + draw.presence_penalty
        row[_index(ids, row)] -= torch.from_numpy(penalties.astype(np.float32)).to(row.device)
    if draw.logit_bias:
        biased, biases = zip(*draw.logit_bias, strict=True)
        row[_index(biased, row)] += torch.tensor(biases, dtype=row.dtype, device=row.device)
    if draw.banned:
        row[_index(draw.banned, row)] = -torch.inf


def _index(ids: Sequence[int] | np.ndarray, row: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(ids, np.int64)).to(row.device)


# --- filters and draws ---------------------------------------------------------------------------


def _draw(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """A token for each row of logits, none of them greedy."""
    device = logits.device
    temperatures = torch.tensor([draw.temperature for draw in draws], device=device)
    probs = (logits / temperatures[:, None]).softmax(-1)
    numbers = torch.from_numpy(uniforms(draws)).to(device)
    tokens = torch.empty(len(draws), dtype=torch.int64, device=device)
    is_open = torch.tensor([_is_unfiltered(draw) for draw in draws], device=device)
    if is_open.any():
        tokens[is_open] = _invert(probs[is_open], numbers[is_open])
    left = (~is_open).nonzero()[:, 0]
    filters = _Filters.of(draws, device)
    for width in _LADDER:
        if len(left) and width < probs.shape[-1]:
            left = _draw_narrow(probs, numbers, filters, left, width, tokens)
    if len(left):
        kept = _keep(probs[left], filters.rows(left))
        tokens[left] = _invert(kept, numbers[left])
    return tokens


def _is_unfiltered(draw: Draw) -> bool:
    return draw.top_k == -1 and draw.top_p >= 1.0 and draw.min_p <= 0.0


@dataclass(frozen=True, slots=True)
class _Filters:
    """[N, 1] each; top_k is _OFF where it is off."""

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor

    @classmethod
    def of(cls, draws: Sequence[Draw], device: torch.device) -> _Filters:
        top_ks = [draw.top_k if draw.top_k > 0 else _OFF for draw in draws]
        return cls(
            torch.tensor(top_ks, device=device)[:, None],
            torch.tensor([draw.top_p for draw in draws], device=device)[:, None],
            torch.tensor([draw.min_p for draw in draws], device=device)[:, None],
        )

    def rows(self, rows: Tensor) -> _Filters:
        return _Filters(self.top_k[rows], self.top_p[rows], self.min_p[rows])


def _draw_narrow(
    probs: Tensor, numbers: Tensor, filters: _Filters, rows: Tensor, width: int, tokens: Tensor
) -> Tensor:
    """Draw for those rows whose filters end within their `width` likeliest tokens (mutates
    `tokens`); the rows that are left."""
    best, ids = probs[rows].topk(width)  # [n, width], descending
    mine = filters.rows(rows)
    ranks = torch.arange(width, device=probs.device)
    in_k = ranks < mine.top_k
    kept = best.double() * in_k
    is_cut = mine.top_k <= width
    total = torch.where(is_cut, kept.sum(-1, keepdim=True), 1.0)
    before = (kept.cumsum(-1) - kept) / total
    keep = in_k & (before < mine.top_p) & (best >= mine.min_p * best[:, :1])
    is_covered = torch.where(mine.top_k < _OFF, is_cut, ~keep[:, -1:])[:, 0]
    order = ids.argsort(-1)
    weights = (kept * keep).gather(-1, order)[is_covered]
    places = _first_above(weights.cumsum(-1), numbers[rows][is_covered])
    tokens[rows[is_covered]] = ids.gather(-1, order)[is_covered].gather(-1, places)[:, 0]
    return rows[~is_covered]


def _keep(probs: Tensor, filters: _Filters) -> Tensor:
    """The probabilities [n, vocabulary] of what the filters keep, 0 elsewhere."""
    size = probs.shape[-1]
    for row in (filters.top_k[:, 0] < size).nonzero()[:, 0].tolist():
        least = probs[row].kthvalue(size - int(filters.top_k[row]) + 1).values
        probs[row] = torch.where(probs[row] >= least, probs[row], 0.0)
    total = probs.sum(-1, keepdim=True, dtype=torch.float64)
    low, high = torch.zeros_like(total), probs.max(-1, keepdim=True).values.double()
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        mass = torch.where(probs >= middle, probs, 0.0).sum(-1, keepdim=True, dtype=torch.float64)
        is_enough = mass >= filters.top_p * total
        low, high = torch.where(is_enough, middle, low), torch.where(is_enough, high, middle)
    floor = torch.maximum(low, filters.min_p * probs.max(-1, keepdim=True).values)
    return torch.where(probs >= floor, probs, 0.0)


def _invert(weights: Tensor, numbers: Tensor) -> Tensor:
    """The token at which the running sum of weights [n, vocabulary] passes its number's share."""
    size = weights.shape[-1]
    padded = torch.nn.functional.pad(weights, (0, -size % _BLOCK)).unflatten(-1, (-1, _BLOCK))
    sums = padded.sum(-1, dtype=torch.float64).cumsum(-1)  # [n, blocks]
    block = _first_above(sums, numbers)
    before = torch.where(block > 0, sums.gather(-1, (block - 1).clamp(min=0)), 0.0)
    inside = padded.gather(1, block[:, :, None].expand(-1, 1, _BLOCK))[:, 0].double().cumsum(-1)
    place = (inside + before <= numbers[:, None] * sums[:, -1:]).sum(-1)
    last = (padded.gather(1, block[:, :, None].expand(-1, 1, _BLOCK))[:, 0] > 0).long()
    place = torch.minimum(place, _BLOCK - 1 - last.flip(-1).argmax(-1))
    return block[:, 0] * _BLOCK + place


def _first_above(sums: Tensor, numbers: Tensor) -> Tensor:
    """[n, 1] first place of each row whose running sum is above the number's share of the whole."""
    target = numbers[:, None] * sums[:, -1:]
    last = (sums < sums[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum((sums <= target).sum(-1, keepdim=True), last)


# --- log-probabilities ---------------------------------------------------------------------------


def _logprobs(
    logits: Tensor, tokens: Tensor, draws: Sequence[Draw]
) -> tuple[Floats, tuple[tuple[tuple[int, float], ...], ...]]:
    logprobs = np.full(len(draws), np.nan, np.float32)
    rows = [row for row, draw in enumerate(draws) if draw.logprobs is not None]
    if not rows:
        return logprobs, ()
    own = logits[rows].log_softmax(-1)
    logprobs[rows] = own.gather(-1, tokens[rows][:, None])[:, 0].numpy(force=True)
    most = max(draws[row].logprobs or 0 for row in rows)
    best, ids = (part.tolist() for part in own.topk(min(most, own.shape[-1])))
    tops: list[tuple[tuple[int, float], ...]] = [()] * len(draws)
    for place, row in enumerate(rows):
        count = draws[row].logprobs or 0
        tops[row] = tuple(zip(ids[place][:count], best[place][:count], strict=True))
    return logprobs, tuple(tops)
