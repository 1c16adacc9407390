"""Row-wise operations of layers beside linear layers and attention: by torch and compiled loops, or
by the kernels of a GPU (`kernels.gpu.rows`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...backend import FusedMoE, Norm
from ..jit.jit import can_compile, compiled


class PlainRows:
    """The `Rows` of any device; on a CPU with compiled loops where these are quicker."""

    fused_moe: FusedMoE | None = None

    @staticmethod
    def norm(weight: Tensor, eps: float) -> Norm:
        """As `Rows.norm`."""
        return CompiledNorm(weight, eps) if _has_loops(weight) else PlainNorm(weight, eps)

    @staticmethod
    def apply_rotary(x: Tensor, cos_sin: Tensor) -> None:
        """As `Rows.apply_rotary`."""
        if _has_loops(x) and x.stride(-1) == 1:
            from ..jit import rows

            loop = compiled(rows.apply_rotary, rows.ROTATE, is_reordered=False)
            loop(x.numpy(), torch.view_as_real(cos_sin).contiguous().view(len(x), -1).numpy())
            return
        pairs = x.view(*x.shape[:-1], -1, 2)
        if x.dtype is torch.float32:
            torch.view_as_complex(pairs).mul_(cos_sin)
        else:  # there are no complex numbers of half precision
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()).mul_(cos_sin)))

    @staticmethod
    def silu_mul(gate_up: Tensor) -> Tensor:
        """As `Rows.silu_mul`."""
        if _has_loops(gate_up):
            from ..jit import rows

            out = gate_up.new_empty(len(gate_up), gate_up.shape[1] // 2)
            loop = compiled(rows.silu_mul, rows.SILU_MUL, is_reordered=False)
            loop(gate_up.contiguous().numpy(), out.numpy())
            return out
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)


class PlainNorm:
    """The `Norm` of any device."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = torch.tensor(eps, device=weight.device)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.addcmul(self._eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        normed = (x * scale).to(x.dtype).mul_(self._weight)
        return normed if out is None else out.copy_(normed)


class CompiledNorm:
    """The same by one loop: for a few rows five operators cost several times as much."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        from ..jit import rows

        self._loop = compiled(rows.normalize, rows.NORMALIZE, is_reordered=False)
        self.weight, self.eps = weight.contiguous(), np.float32(eps)
        self._weights = self.weight.view(-1, weight.shape[-1]).numpy()

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        normed = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
        assert x.stride(-1) == normed.stride(-1) == 1
        self._loop(_by_head(x), self._weights, self.eps, _by_head(normed))
        return normed


def _by_head(x: Tensor) -> Any:
    """[tokens, heads, dim] in the same memory."""
    return (x if x.dim() == 3 else x.unsqueeze(1)).numpy()


def _has_loops(x: Tensor) -> bool:
    """Whether there can be compiled loops for such numbers."""
    return x.is_cpu and x.dtype is torch.float32 and can_compile()
