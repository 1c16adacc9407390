"""Rotary position encoding (RoPE), with every scaling of positions that models use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..rope import RopeConfig

_MIN_POSITIONS = 8192  # positions whose rotations are computed at once


class StepRotary:
    """Rotations of a step's tokens [tokens, 1, dim / 2], whose positions are 0, 1, 2, ..."""

    def __init__(self, rotations: Tensor) -> None:
        self._rotations = rotations

    def angles(self, positions: Tensor) -> Tensor:
        """As `Rotary.angles`."""
        return self._rotations

    def table(self, positions: Tensor) -> Tensor:
        """As `Rotary.table`."""
        return self._rotations


class RotaryEmbedding:
    """Rotations of pairs in queries and keys by position (`Rows.apply_rotary`).

    Pairs are adjacent, (0, 1), (2, 3), ..., so that a rotation is one complex product; checkpoints
    pair the halves of a head, and `interleave` reorders their weights. On a CPU the table of
    rotations is cached.
    """

    def __init__(
        self, config: RopeConfig, head_dim: int, context_len: int, device: torch.device
    ) -> None:
        self._frequencies = frequencies(config, head_dim, context_len).to(device)  # [dim / 2]
        self._attention_scaling = torch.tensor(
            attention_scaling(config), dtype=torch.float32, device=device
        )
        counts = torch.tensor(config.sections or (head_dim // 2,))
        self._part_of_pair = torch.arange(len(counts)).repeat_interleave(counts).to(device)
        self._context_len, self._device = context_len, device
        self._known = self._computed(torch.arange(0, device=device))

    def angles(self, positions: Tensor) -> Tensor:
        """Rotations at positions [tokens], as complex numbers [tokens, 1, dim / 2] of length
        `attention_scaling`."""
        if self._device.type != "cpu":  # reading the highest position would wait for the device
            return self._computed(positions)
        return self.table(positions).index_select(0, positions)

    def table(self, positions: Tensor) -> Tensor:
        """Rotations at 0, 1, 2, ... up to these positions or further."""
        if len(self._known) < self._context_len:
            count = int(positions.max()) + 1 if len(positions) else 0
            if count > len(self._known):
                count = max(2 * count, _MIN_POSITIONS)
                all_positions = torch.arange(min(count, self._context_len), device=self._device)
                self._known = self._computed(all_positions)
        return self._known

    def of_parts(self, parts: Tensor) -> StepRotary:
        """Rotations at positions of three parts [3, tokens], as a table of the step's tokens."""
        own = parts.index_select(0, self._part_of_pair).T[:, None]  # [tokens, 1, dim / 2]
        return StepRotary(self._rotated(own.float() * self._frequencies))

    def _computed(self, positions: Tensor) -> Tensor:
        return self._rotated(positions.float()[:, None, None] * self._frequencies)

    def _rotated(self, angles: Tensor) -> Tensor:
        return torch.polar(self._attention_scaling.expand(angles.shape), angles)

    @staticmethod
    def interleave(weight: Tensor, head_dim: int) -> Tensor:
        """Bring the rows of a q or k projection, [heads * dim, ...], into adjacent pairs."""
        halves = weight.view(-1, 2, head_dim // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)


def frequencies(config: RopeConfig, head_dim: int, context_len: int) -> Tensor:
    """Radians per position of each pair [dim / 2], for sequences of up to `context_len` tokens.

    A cached key must not change as its sequence grows, so that longrope's factors are chosen by
    `context_len`, not by the length so far. Up to the length that a model was made for, "dynamic"
    scaling changes nothing, and no sequence is longer here.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    periods = config.theta**exponents
    match config.kind:
        case "default" | "dynamic":
            return 1.0 / periods
        case "linear":
            return 1.0 / periods / config.factor
        case "llama3":
            return _llama3(1.0 / periods, config)
        case "yarn":
            return _yarn(1.0 / periods, config, head_dim)
        case "longrope":
            is_long = context_len > config.original_len
            factors = config.long_factors if is_long else config.short_factors
            return 1.0 / (torch.tensor(factors) * periods)


def attention_scaling(config: RopeConfig) -> float:
    """The factor of rotated queries and keys."""
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


def _llama3(inv_freq: Tensor, config: RopeConfig) -> Tensor:
    """Llama 3.1: long wavelengths are scaled by `factor`, short ones kept, others blended."""
    rotations = config.original_len * inv_freq / (2 * math.pi)
    span = config.high_freq_factor - config.low_freq_factor
    smooth = ((rotations - config.low_freq_factor) / span).clamp(0, 1)
    return inv_freq * (smooth + (1 - smooth) / config.factor)


def _yarn(inv_freq: Tensor, config: RopeConfig, head_dim: int) -> Tensor:
    """YaRN: pairs with many rotations in `original_len` positions are kept, those with few are
    scaled by `factor`, those between are blended by their index."""
    low = _correction_dim(config.beta_fast, config, head_dim)
    high = _correction_dim(config.beta_slow, config, head_dim)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    dims = torch.arange(head_dim // 2, dtype=torch.float32)
    ramp = ((dims - low) / (high - low if high != low else 0.001)).clamp(0, 1)
    return inv_freq * (1 - ramp) + inv_freq / config.factor * ramp


def _correction_dim(rotations: float, config: RopeConfig, head_dim: int) -> float:
    """Index of the pair with this many rotations in `original_len` positions."""
    wave = config.original_len / (rotations * 2 * math.pi)
    return head_dim * math.log(wave) / (2 * math.log(config.theta))
