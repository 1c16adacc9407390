"""The parts that decoder models are made of, for inference. They hold weights and no state."""

from __future__ import annotations

import torch
from torch import Tensor

from ....kernels.backend import LinearKernel, Matrix
from ..parallel import Ranks


class Linear:
    """y = x W^T + b for x [tokens, in]."""

    def __init__(self, kernel: LinearKernel, bias: Tensor | None = None) -> None:
        self._kernel = kernel
        self._bias = bias

    @property
    def matrix(self) -> Matrix | None:
        """All that it is; None for more than a linear kernel and a bias."""
        return Matrix(self._kernel, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        y = self._kernel(x)
        return y if self._bias is None else y.add_(self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += y."""
        self._kernel.add_to(residual, x)
        if self._bias is not None:
            residual += self._bias


class SummedLinear(Linear):
    """A linear layer whose input is spread over ranks: each multiplies its part, all add up."""

    def __init__(self, kernel: LinearKernel, bias: Tensor | None, ranks: Ranks) -> None:
        super().__init__(kernel, bias)
        self._ranks = ranks

    @classmethod
    def of(cls, kernel: LinearKernel, bias: Tensor | None, ranks: Ranks) -> Linear:
        """A plain layer if there is one rank."""
        return Linear(kernel, bias) if ranks.size == 1 else cls(kernel, bias, ranks)

    @property
    def matrix(self) -> Matrix | None:
        """As `Linear.matrix`."""
        return None

    def __call__(self, x: Tensor) -> Tensor:
        y = self._ranks.sum(self._kernel(x))
        return y if self._bias is None else y.add_(self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += y."""
        residual += self(x)


class Embedding:
    """Rows of a table [vocabulary, hidden]. dtype: of the rows, as linear layers take them."""

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None:
        self.weight = weight
        self._dtype = dtype

    def __call__(self, ids: Tensor) -> Tensor:
        return self.weight.index_select(0, ids).to(self._dtype)


class SharedEmbedding(Embedding):
    """A table of which each rank has some rows: each gives its own and zeros, all add up, which is
    exact. weight: this rank's, with zeros up to its room; start: the first one's token id."""

    def __init__(self, weight: Tensor, dtype: torch.dtype, start: int, ranks: Ranks) -> None:
        super().__init__(weight, dtype)
        self._start, self._ranks = start, ranks

    def __call__(self, ids: Tensor) -> Tensor:
        local_ids = ids - self._start
        is_other = (local_ids < 0) | (local_ids >= len(self.weight))
        found = super().__call__(local_ids.masked_fill_(is_other, 0))
        return self._ranks.sum(found.masked_fill_(is_other[:, None], 0))


class SharedHead:
    """Logits of a vocabulary of which each rank has some rows: only rank 0 gets all of them."""

    matrix: Matrix | None = None

    def __init__(self, kernel: LinearKernel, count: int, ranks: Ranks) -> None:
        self._kernel, self._ranks = kernel, ranks
        self._blocks = [ranks.block(count, rank) for rank in range(ranks.size)]

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, vocabulary] in float32 on rank 0, [rows, 0] on the others."""
        count = 0 if self._ranks.rank else self._blocks[-1].stop
        logits = torch.empty(len(x), count, dtype=torch.float32, device=x.device)
        for block, part in zip(self._blocks, self._ranks.gathered(self._kernel(x)), strict=False):
            logits[:, block] = part[:, : block.stop - block.start]
        return logits
