"""By which angles queries and keys are turned, for every scaling of positions that models use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..rope import RopeConfig

_LEAST = 8192  # positions whose turns are computed at once


class RotaryEmbedding:
    """The angles, growing with the position, by which pairs of numbers in queries and keys are
    turned (`Rows.apply_rotary`).

    Pairs are neighbours, (0, 1), (2, 3), ..., so that a turn is one complex product; checkpoints
    pair the halves of a head, and `interleave` brings their weights into this order. On a CPU the
    turns are kept once they are known.
    """

    def __init__(
        self, config: RopeConfig, head_dim: int, context_len: int, device: torch.device
    ) -> None:
        self._frequencies = frequencies(config, head_dim, context_len).to(device)  # [dim / 2]
        self._length = torch.tensor(stretch(config), dtype=torch.float32, device=device)
        self._context_len, self._device = context_len, device
        self._known = self._computed(torch.arange(0, device=device))

    def angles(self, positions: Tensor) -> Tensor:
        """The turns at positions [tokens], as complex numbers [tokens, 1, dim / 2]: of length 1
        but for scalings that stretch."""
        if self._device.type != "cpu":  # where the highest one would be waited for
            return self._computed(positions)
        return self.table(positions).index_select(0, positions)

    def table(self, positions: Tensor) -> Tensor:
        """The turns at 0, 1, 2, ... up to these positions or further."""
        if len(self._known) < self._context_len:
            count = int(positions.max()) + 1 if len(positions) else 0
            if count > len(self._known):
                count = max(2 * count, _LEAST)
                places = torch.arange(min(count, self._context_len), device=self._device)
                self._known = self._computed(places)
        return self._known

    def _computed(self, positions: Tensor) -> Tensor:
        angles = positions.float()[:, None, None] * self._frequencies
        return torch.polar(self._length.expand(angles.shape), angles)

    @staticmethod
    def interleave(weight: Tensor, head_dim: int) -> Tensor:
        """Bring the rows of a q or k projection, [heads * dim, ...], into neighbour pairs."""
        halves = weight.view(-1, 2, head_dim // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)


def frequencies(config: RopeConfig, head_dim: int, context_len: int) -> Tensor:
    """Radians per position of each pair [dim / 2], for sequences of up to `context_len` tokens.

    A cached key must not change as its sequence grows, so that longrope's factors are chosen by
    `context_len`, not by the length so far. Up to the length that a model was made for, "dynamic"
    scaling changes nothing, and no sequence is longer here.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    powers = config.theta**exponents
    match config.kind:
        case "default" | "dynamic":
            return 1.0 / powers
        case "linear":
            return 1.0 / powers / config.factor
        case "llama3":
            return _llama3(1.0 / powers, config)
        case "yarn":
            return _yarn(1.0 / powers, config, head_dim)
        case "longrope":
            is_long = context_len > config.original_len
            factors = config.long_factors if is_long else config.short_factors
            return 1.0 / (torch.tensor(factors) * powers)


def stretch(config: RopeConfig) -> float:
    """By which turned queries and keys are stretched."""
    if config.attention_factor is not None:
        return config.attention_factor
    if config.kind == "yarn":
        if config.mscale and config.mscale_all_dim:
            return _yarn_scale(config, config.mscale) / _yarn_scale(config, config.mscale_all_dim)
        return _yarn_scale(config, 1.0)
    if config.kind == "longrope" and config.factor > 1:
        return math.sqrt(1 + math.log(config.factor) / math.log(config.original_len))
    return 1.0


def _yarn_scale(config: RopeConfig, weight: float) -> float:
    return 0.1 * weight * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0


def _llama3(plain: Tensor, config: RopeConfig) -> Tensor:
    """Llama 3.1: long waves are slowed by `factor`, short ones kept, those between are blended."""
    turns = config.original_len * plain / (2 * math.pi)
    span = config.high_freq_factor - config.low_freq_factor
    kept = ((turns - config.low_freq_factor) / span).clamp(0, 1)
    return plain * (kept + (1 - kept) / config.factor)


def _yarn(plain: Tensor, config: RopeConfig, head_dim: int) -> Tensor:
    """YaRN: pairs that turn often in `original_len` positions are kept, those that turn seldom are
    slowed by `factor`, those between are blended by their place."""
    low = _place_of(config.beta_fast, config, head_dim)
    high = _place_of(config.beta_slow, config, head_dim)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    places = torch.arange(head_dim // 2, dtype=torch.float32)
    slowed = ((places - low) / (high - low if high != low else 0.001)).clamp(0, 1)
    return plain * (1 - slowed) + plain / config.factor * slowed


def _place_of(turns: float, config: RopeConfig, head_dim: int) -> float:
    """The place among the pairs of one that turns so often in `original_len` positions."""
    wave = config.original_len / (turns * 2 * math.pi)
    return head_dim * math.log(wave) / (2 * math.log(config.theta))
