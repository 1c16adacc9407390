"""The parts that decoder models are made of, for inference. They hold weights and no state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...kernels.paged import can_compile, compiled
from ...kernels.products import Product
from .parallel import Ranks

_NORM = "void(float32[:, ::1], float32[::1], float32, float32[:, ::1])"


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


class SummedLinear(Linear):
    """A linear layer whose input is spread over ranks: each multiplies its part, all add up."""

    def __init__(self, product: Product, bias: Tensor | None, ranks: Ranks) -> None:
        super().__init__(product, bias)
        self._ranks = ranks

    @classmethod
    def of(cls, product: Product, bias: Tensor | None, ranks: Ranks) -> Linear:
        """A plain layer if there is one rank."""
        return Linear(product, bias) if ranks.size == 1 else cls(product, bias, ranks)

    def __call__(self, x: Tensor) -> Tensor:
        y = self._ranks.sum(self._product(x))
        return y if self._bias is None else y.add_(self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += y."""
        residual += self(x)


class Embedding:
    """Rows of a table [vocabulary, hidden]."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, ids: Tensor) -> Tensor:
        return self.weight.index_select(0, ids)


class RMSNorm:
    """Scale every row to root mean square 1, then by a weight [dim], or [heads, dim]."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = torch.tensor(eps, device=weight.device)
        is_plain = weight.is_cpu and weight.dtype is torch.float32 and weight.dim() == 1
        self._compiled = _compiled_norm(weight, eps) if is_plain and can_compile() else None

    def __call__(self, x: Tensor) -> Tensor:
        if self._compiled is not None:
            return self._compiled(x)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.addcmul(self._eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).to(x.dtype).mul_(self._weight)


def _compiled_norm(weight: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
    """As `RMSNorm`, by one loop: for a few rows five operators cost several times as much."""
    loop, weights, small = compiled(_norm, _NORM), weight.contiguous().numpy(), np.float32(eps)

    def norm(x: Tensor) -> Tensor:
        normed = torch.empty_like(x, memory_format=torch.contiguous_format)
        loop(x.contiguous().numpy(), weights, small, normed.numpy())
        return normed

    return norm


def _norm(x, weight, eps, normed):  # type: ignore[no-untyped-def]
    for row in range(len(x)):
        numbers, total = x[row], np.float32(0)
        for i in range(len(numbers)):
            total += numbers[i] * numbers[i]
        scale = np.float32(1) / np.sqrt(total / np.float32(len(numbers)) + eps)
        for i in range(len(numbers)):
            normed[row, i] = numbers[i] * scale * weight[i]
