"""What layers do to rows of numbers, by the kernels of a GPU."""

from __future__ import annotations

from torch import Tensor

from . import activation, experts, norms, rotary


class GpuRows:
    """The `Rows` of a GPU."""

    fused_moe = staticmethod(experts.fused_moe)

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


class GpuNorm:
    """The `Norm` of a GPU."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        return norms.rms_norm(x, self._weight, self._eps, out)
