"""Makes a model's layers from its stored weights: fused where one product can do for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...kernels.products import Products
from .config import ModelConfig
from .layers import Embedding, Linear, RMSNorm, RotaryEmbedding


class Weights(Protocol):
    """Stored tensors by name."""

    def take(self, name: str) -> Tensor:
        """Read one tensor; each is asked for once."""


class Parts:
    """Layers by the names that their weights have in the checkpoint."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self._weights = weights
        self._products = Products()

    def embedding(self, name: str) -> Embedding:
        return Embedding(self._weights.take(f"{name}.weight"))

    def norm(self, name: str) -> RMSNorm:
        return RMSNorm(self._weights.take(f"{name}.weight"), self.config.norm_eps)

    def head(self, name: str, embedding: Embedding) -> Linear:
        """The output matrix; the embedding's own if the model ties them."""
        is_tied = self.config.is_tied
        return Linear(
            self._products.of(embedding.weight if is_tied else self._weights.take(f"{name}.weight"))
        )

    def linear(self, names: Sequence[str], has_bias: bool, num_turned: int = 0) -> Linear:
        """One layer for several with the same input, whose outputs follow one another; those of
        the first `num_turned` are brought into rotary order."""
        weight = self._joined(names, "weight", num_turned)
        bias = self._joined(names, "bias", num_turned) if has_bias else None
        return Linear(self._products.of(weight), bias)

    def _joined(self, names: Sequence[str], kind: str, num_turned: int) -> Tensor:
        tensors = [self._weights.take(f"{name}.{kind}") for name in names]
        for i in range(num_turned):
            tensors[i] = RotaryEmbedding.interleave(tensors[i], self.config.head_dim)
        return torch.cat(tensors) if len(tensors) > 1 else tensors[0]
