"""The parts that decoder models are made of, for inference. They hold weights and no state."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...kernels.products import Product
from .config import RopeConfig


class Linear:
    """y = x W^T + b for x [tokens, in]."""

    def __init__(self, product: Product, bias: Tensor | None = None) -> None:
        self._product = product
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y = self._product(x)
        return y if self._bias is None else y.add_(self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += y."""
        self._product.add_to(residual, x)
        if self._bias is not None:
            residual += self._bias


class Embedding:
    """Rows of a table [vocabulary, hidden]."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, ids: Tensor) -> Tensor:
        return self.weight.index_select(0, ids)


class RMSNorm:
    """Scale every row to root mean square 1, then by a weight."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = torch.tensor(eps, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.addcmul(self._eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).to(x.dtype).mul_(self._weight)


class RotaryEmbedding:
    """Turns pairs of numbers in queries and keys by angles that grow with the position.

    Pairs are neighbours, (0, 1), (2, 3), ..., so that a turn is one complex product; checkpoints
    pair the halves of a head, and `interleave` brings their weights into this order.
    """

    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device) -> None:
        self._frequencies = _frequencies(config, head_dim).to(device)  # [dim / 2]
        self._one = torch.ones((), device=device)

    def angles(self, positions: Tensor) -> Tensor:
        """The turns at positions [tokens], as unit complex numbers [tokens, 1, dim / 2]."""
        angles = positions.float()[:, None, None] * self._frequencies
        return torch.polar(self._one.expand(angles.shape), angles)

    @staticmethod
    def turn(x: Tensor, angles: Tensor) -> None:
        """Turn x [tokens, heads, dim] in place."""
        pairs = x.view(*x.shape[:-1], -1, 2)
        if x.dtype is torch.float32:
            torch.view_as_complex(pairs).mul_(angles)
        else:  # there are no complex numbers of half precision
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()).mul_(angles)))

    @staticmethod
    def interleave(weight: Tensor, head_dim: int) -> Tensor:
        """Bring the rows of a q or k projection, [heads * dim, ...], into neighbour pairs."""
        halves = weight.view(-1, 2, head_dim // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)


def _frequencies(config: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position of each pair [dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / config.theta**exponents
    if config.kind == "linear":
        return frequencies / config.factor
    if config.kind == "llama3":
        return _stretch(frequencies, config)
    return frequencies


def _stretch(frequencies: Tensor, config: RopeConfig) -> Tensor:
    """Llama 3.1: long waves are slowed by `factor`, short ones kept, those between are blended."""
    turns = config.original_len * frequencies / (2 * math.pi)
    span = config.high_freq_factor - config.low_freq_factor
    kept = ((turns - config.low_freq_factor) / span).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / config.factor)
