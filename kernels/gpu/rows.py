"""What layers do to rows of numbers, by the kernels of a GPU."""

from __future__ import annotations

from torch import Tensor

from ..backend import Norm
from . import activation, experts, norms, rotary


class GpuRows:
    """The `FusedRows` of a GPU."""

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
    def rotate_and_write(
        qkv: Tensor, norm: Norm | None, cos_sin: Tensor, kv: Tensor, slots: Tensor
    ) -> None:
        """As `FusedRows.rotate_and_write`."""
        rotary.rotate_and_write(qkv, weight_of(norm), cos_sin, kv, slots)

    @staticmethod
    def silu_mul(gate_up: Tensor) -> Tensor:
        """As `Rows.silu_mul`."""
        return activation.silu_mul(gate_up)


class GpuNorm:
    """The `Norm` of a GPU."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight, eps

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        return norms.rms_norm(x, self.weight, self.eps, out)


def weight_of(norm: Norm | None) -> tuple[Tensor, float] | None:
    """Weight and eps of a norm of `GpuRows`."""
    assert norm is None or isinstance(norm, GpuNorm)
    return None if norm is None else (norm.weight, norm.eps)
