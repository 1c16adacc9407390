"""What layers do to rows of numbers, by the kernels of a GPU."""

from __future__ import annotations

from torch import Tensor

from . import activation, norms, rotary
from .experts import SortedPairs, gathered_gemm, weighted_gemm


class GpuRows:
    """The `Rows` of a GPU."""

    @staticmethod
    def norm(weight: Tensor, eps: float) -> GpuNorm:
        """As `Rows.norm`."""
        return GpuNorm(weight, eps)

    @staticmethod
    def apply_rotary(x: Tensor, cos_sin: Tensor) -> None:
        """As `Rows.apply_rotary`."""
        rotary.apply_rotary(x, cos_sin)

    @staticmethod
    def silu_mul(gate_up: Tensor) -> Tensor:
        """As `Rows.silu_mul`."""
        return activation.silu_mul(gate_up)

    @staticmethod
    def fused_moe(
        x: Tensor, w1: Tensor, w2: Tensor, topk_ids: Tensor, topk_weights: Tensor
    ) -> Tensor:
        """As `Mix`: pairs of token and expert are sorted by expert on the device."""
        num_tokens, per_token = topk_ids.shape
        pairs = SortedPairs.of(topk_ids, len(w1))
        middle = activation.silu_mul(gathered_gemm(x, w1, pairs, per_token))
        made = weighted_gemm(middle, w2, pairs, topk_weights.flatten())
        return made.view(num_tokens, per_token, -1).sum(1)


class GpuNorm:
    """The `Norm` of a GPU."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        return norms.rms_norm(x, self._weight, self._eps, out)
