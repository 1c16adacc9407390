"""The parts that decoder models are made of, for inference. They hold weights and no state."""

from __future__ import annotations

from torch import Tensor

from ...kernels.products import Product
from .parallel import Ranks


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
