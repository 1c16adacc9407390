"""Samples tokens from logits, a whole batch at once.

Every filter is a floor: the least weight that a token may have, found by compiled loops on a CPU
that has them, else among the few likeliest tokens and, only for rows where these do not hold the
nucleus, among more. Each row's random number depends on its own seed and index alone, and is spent
by inverting the distribution in the order of token ids, so that what is sampled for a sequence does
not depend on its batch. Order of the filters as in transformers: penalties and biases, temperature,
top-k, top-p of what is left, min-p. Tokens as likely as the last one kept are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ....kernels.cpu.sampling.masks import masker
from ....kernels.cpu.sampling.nucleus import Filters, compiled_sampler
from ...api.batch import GREEDY, Floats, Longs, SamplingParams
from .fetch import Fetch
from .logprobs import MIN_TEMPERATURE, Top, log_masses, logprobs
from .masks import allowed_argmax, masked
from .penalties import changed, is_changing

_TOP_SIZES = (64, 1024)  # how many of the likeliest tokens are looked at, before all
_BLOCK = 128
_BISECTIONS = 30  # of the range of the bits of 0 to 1
_ABOVE_ONE = 0x3F800001  # bits of the float after 1


@dataclass(frozen=True, slots=True)
class Samples:
    """tokens: [N], -1 where a row's logits are not finite, or all its tokens are banned.
    logprobs: [N] under the model's own distribution, NaN where not requested. tops: the
    top log-probabilities of each, empty where not requested. log_masses: [N] as in `Outcome`, or
    empty where none are requested."""

    tokens: Longs
    logprobs: Floats
    tops: tuple[Top, ...]
    log_masses: Floats = field(default_factory=lambda: np.empty(0, np.float32))


def sample(
    logits: Tensor, params: Sequence[SamplingParams], is_compiled: bool | None = None
) -> Samples:
    """Sample one token for each row of logits [N, vocabulary] (float32, left as they are).

    is_compiled: by compiled loops; None: on a CPU where numba is there. Both keep the same tokens.
    """
    has_loops = has_compiled_sampler(logits.device) if is_compiled is None else is_compiled
    quick = _compiled_or_none(logits, params) if has_loops else None
    if quick is not None:
        return _tokens_only(quick)
    total = logits.sum(-1)
    is_sound = total - total == 0  # all finite
    if all(it is GREEDY for it in params):
        plain: Longs = torch.where(is_sound, _greedy(logits), -1).numpy(force=True)
        return _tokens_only(plain)
    free = changed(logits, params)
    allowed = masked(free, params, has_loops)
    tokens = _tokens(allowed, params, has_loops)
    if allowed is not logits:
        is_sound &= allowed.gather(-1, tokens[:, None])[:, 0] > -torch.inf
    chosen: Longs = torch.where(is_sound, tokens, -1).numpy(force=True)
    fetch = Fetch(logits.device)
    read_logprobs = logprobs(logits, tokens, params, fetch)
    read_log_masses = log_masses(free, allowed, params, fetch)
    fetch.seal()
    fetch.wait()
    return Samples(chosen, *read_logprobs(), read_log_masses())


def _compiled_or_none(logits: Tensor, params: Sequence[SamplingParams]) -> Longs | None:
    """The tokens, read from the logits as they are; None where more than tokens are requested."""
    loops, under_masks = compiled_sampler(), masker()
    assert loops is not None and under_masks is not None
    if all(it is GREEDY for it in params):
        return loops.greedy(logits.contiguous().numpy())
    if not all(map(_needs_token_only, params)):
        return None
    if all(it.mask is None for it in params):
        return _compiled_tokens(logits, params)
    if all(it.temperature == 0 for it in params):
        return allowed_argmax(logits, params, under_masks)
    return None


def _needs_token_only(params: SamplingParams) -> bool:
    """Whether nothing but a token is requested, and nothing but a mask changes the logits."""
    return not (is_changing(params) or params.logprobs is not None or params.log_mass)


def _tokens_only(tokens: Longs) -> Samples:
    none = np.empty(len(tokens), np.float32)
    none.fill(np.nan)
    return Samples(tokens, none, ((),) * len(tokens))


def has_compiled_sampler(device: torch.device) -> bool:
    """Whether compiled sampling loops exist for the device; compiles them on the first call."""
    return device.type == "cpu" and compiled_sampler() is not None and masker() is not None


def uniforms(params: Sequence[SamplingParams]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row, a function of its seed and index (SplitMix64)."""
    with np.errstate(over="ignore"):
        seeds = np.array([it.seed for it in params], np.uint64)
        steps = np.array([it.index + 1 for it in params], np.uint64)
        x = _splitmix64(seeds) + steps * np.uint64(0x9E3779B97F4A7C15)
        return (_splitmix64(x) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _splitmix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _greedy(logits: Tensor) -> Tensor:
    """The first of the likeliest tokens of each row; on a CPU by numpy, which takes a twentieth of
    torch's time for it."""
    return torch.from_numpy(logits.numpy().argmax(-1)) if logits.is_cpu else logits.argmax(-1)


# --- tokens --------------------------------------------------------------------------------------


def _tokens(logits: Tensor, params: Sequence[SamplingParams], is_compiled: bool) -> Tensor:
    """The likeliest token of each greedy row, and one sampled for each of the others."""
    if is_compiled:
        return torch.from_numpy(_compiled_tokens(logits, params, has_holes=True)).clamp_(min=0)
    rows = [row for row, it in enumerate(params) if it.temperature > 0]
    if len(rows) == len(params):
        return _sampled(logits, params)
    tokens = _greedy(logits)
    if rows:
        index = torch.tensor(rows, device=logits.device)
        tokens[index] = _sampled(logits.index_select(0, index), [params[row] for row in rows])
    return tokens


def _compiled_tokens(
    logits: Tensor, params: Sequence[SamplingParams], has_holes: bool = False
) -> Longs:
    """As `_tokens`, by compiled loops; -1 and has_holes as in `CompiledSampler.sample`."""
    loops = compiled_sampler()
    assert loops is not None
    filters = Filters(
        np.array([it.top_k for it in params], np.int64),
        np.array([it.top_p for it in params], np.float64),
        np.array([it.min_p for it in params], np.float32),
    )
    temperatures = np.array([it.temperature for it in params])
    rows = logits.contiguous().numpy()
    return loops.sample(rows, temperatures, filters, uniforms(params), has_holes)


def _sampled(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """A token for each row of logits, none of them greedy."""
    weights = _weights(logits, [it.temperature for it in params])
    if any(it.top_k > 0 or it.top_p < 1 or it.min_p > 0 for it in params):
        floors = _floors(weights, params)
        weights *= torch.ge(weights, floors, out=torch.empty_like(weights))
    return _invert(weights, torch.from_numpy(uniforms(params)).to(logits.device))


def _weights(logits: Tensor, temperatures: list[float]) -> Tensor:
    """Probabilities up to a factor: the likeliest token of a row has 1. Filled up with zeros to
    whole blocks: [N, at least vocabulary]."""
    size = logits.shape[-1]
    weights = logits.new_empty(len(logits), -(-size // _BLOCK) * _BLOCK)
    weights[:, size:] = 0
    real = weights[:, :size]
    cold = torch.tensor([max(t, MIN_TEMPERATURE) for t in temperatures], device=logits.device)
    torch.sub(logits, logits.amax(-1, keepdim=True), out=real)
    real.div_(cold[:, None]).exp_()
    return weights


def _invert(weights: Tensor, numbers: Tensor) -> Tensor:
    """The token of each row at which the running sum of its weights passes `numbers` [N] of the
    whole: first the block of tokens, then the token in it."""
    blocks = weights.view(len(weights), -1, _BLOCK)
    sums = _block_sums(weights).cumsum(-1)
    goal = numbers[:, None] * sums[:, -1:]
    block = _first_above(sums, goal)
    goal -= torch.where(block > 0, sums.gather(-1, (block - 1).clamp(min=0)), 0.0)
    chosen = blocks.gather(1, block[:, :, None].expand(-1, 1, _BLOCK))[:, 0]
    return (block * _BLOCK + _first_above(chosen.double().cumsum(-1), goal))[:, 0]


def _first_above(sums: Tensor, goal: Tensor) -> Tensor:
    """[N, 1] first place where ascending sums [N, n] are above the goal [N, 1]; the last place
    where they still grow, if rounding puts the goal behind it."""
    last = (sums < sums[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum((sums <= goal).sum(-1, keepdim=True), last)


# --- filters -------------------------------------------------------------------------------------


def _floors(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """[N, 1] the least weight that each row's filters keep."""
    size = weights.shape[-1]
    floors = weights.new_tensor([it.min_p for it in params])
    left = [row for row, it in enumerate(params) if it.top_k > 0 or it.top_p < 1]
    finders: list[Callable[[Tensor, Sequence[SamplingParams]], Tensor]] = [
        *(partial(_top_floors, width=width) for width in _TOP_SIZES if width < size),
        _bisected_floors,
    ]
    for find in finders:
        if not left:
            break
        index = torch.tensor(left, device=weights.device)
        found = find(weights.index_select(0, index), [params[row] for row in left])
        floors[index] = torch.maximum(floors[index], found)
        left = index[~(found >= 0)].tolist()
    return floors[:, None]


def _bisected_floors(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """As `_top_floors` among all tokens, for the rare rows whose nucleus is wide: found by halving
    the range of its bits (those of ascending positive floats ascend) instead of a sort."""
    size = weights.shape[-1]
    least = [
        float(row.kthvalue(size - it.top_k + 1).values) if 0 < it.top_k < size else 0.0
        for row, it in zip(weights, params, strict=True)
    ]
    low = weights.new_tensor(least)[:, None]
    kept = torch.empty_like(weights)
    shares = torch.tensor([it.top_p for it in params], dtype=torch.float64)[:, None]
    whole = _mass_above(weights, low, kept) - _tie_mass(weights, low, params)
    wanted = shares.to(weights.device) * whole
    low = low.view(torch.int32)  # where enough is kept
    high = torch.full_like(low, _ABOVE_ONE)  # where too little is
    for _ in range(_BISECTIONS):
        middle = (low + high) // 2
        is_enough = _mass_above(weights, middle.view(torch.float32), kept) >= wanted
        low, high = torch.where(is_enough, middle, low), torch.where(is_enough, high, middle)
    return low.view(torch.float32)[:, 0]


def _tie_mass(weights: Tensor, least: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """[N, 1] mass of what is kept beyond top-k for being as likely as the last one."""
    size = weights.shape[-1]
    counts = [it.top_k if 0 < it.top_k < size else size for it in params]
    wanted = torch.tensor(counts, device=weights.device)[:, None]
    num_ties = ((weights >= least).sum(-1, keepdim=True) - wanted).clamp(min=0)
    return num_ties * least.double()


def _mass_above(weights: Tensor, floors: Tensor, kept: Tensor) -> Tensor:
    """[N, 1] sum of the weights that are at least the floors [N, 1]; `kept` is room for them."""
    torch.ge(weights, floors, out=kept).mul_(weights)
    return _block_sums(kept).sum(-1, keepdim=True)


def _block_sums(weights: Tensor) -> Tensor:
    """[N, blocks] in float64: quicker than to add all numbers in float64, and as good."""
    return weights.view(len(weights), -1, _BLOCK).sum(-1).double()


def _top_floors(weights: Tensor, params: Sequence[SamplingParams], width: int) -> Tensor:
    """[n] the least weight that top-k and top-p keep, -1 where it is not among the `width` largest.

    Of those that top-k keeps, top-p keeps the fewest, likeliest first, that reach its share.
    """
    device, size = weights.device, weights.shape[-1]
    count = [it.top_k if 0 < it.top_k <= width else size for it in params]
    is_known = [it.top_k <= width or width == size for it in params]
    counts, known = (torch.tensor(x, device=device)[:, None] for x in (count, is_known))
    best = _largest(weights, width).double()
    best *= torch.arange(width, device=device) < counts
    sums = best.cumsum(-1)
    whole = torch.where(counts <= width, sums[:, -1:], weights.sum(-1, keepdim=True).double())
    shares = torch.tensor([it.top_p for it in params], dtype=torch.float64, device=device)
    cut_index = (sums < shares[:, None] * whole).sum(-1, keepdim=True)
    is_inside = known & ((cut_index < width) | (counts <= width))
    least = torch.minimum(cut_index, counts.clamp(max=width) - 1)
    return torch.where(is_inside, best.gather(-1, least), -1.0)[:, 0].float()


def _largest(weights: Tensor, count: int) -> Tensor:
    """The `count` largest of each row, descending."""
    if not weights.is_cpu:
        return weights.topk(count).values
    rest = weights.shape[-1] - count
    best: np.ndarray[Any, Any] = (
        np.partition(weights.numpy(), rest, axis=-1) if rest else weights.numpy()
    )
    return torch.from_numpy(np.sort(best[:, rest:], axis=-1)[:, ::-1].copy())
