"""What layers do to rows of numbers beside products and attention: by torch and compiled loops, or
by the kernels of a GPU (`kernels.gpu.rows`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .paged import can_compile, compiled

_NORM = "void(float32[:, ::1], float32[::1], float32, float32[:, ::1])"


class Norm(Protocol):
    """Scales every row to root mean square 1, then by a weight [dim], or [heads, dim]."""

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x [tokens, dim], or [tokens, heads, dim]; into `out`, which may be x, or a new tensor."""


class Mix(Protocol):
    """A mixture of experts whose matrices lie in one piece."""

    def __call__(
        self, x: Tensor, into: Tensor, back: Tensor, chosen: Tensor, shares: Tensor
    ) -> Tensor:
        """For x [tokens, hidden] the sum of back(silu(gate) * up) over the experts chosen [tokens,
        k], by shares [tokens, k] (float32): a new [tokens, hidden] in float32. into: [experts, gate
        then up, hidden]. back: [experts, hidden, ffn]."""


class Rows(Protocol):
    """What a device does to rows."""

    @property
    def mix(self) -> Mix | None:
        """None: each expert is computed by itself."""

    def norm(self, weight: Tensor, eps: float) -> Norm:
        """The norm with a weight."""

    def turn(self, x: Tensor, angles: Tensor) -> None:
        """Turn the pairs (0, 1), (2, 3), ... of x [tokens, heads, dim] in place by complex numbers
        [tokens, 1, dim / 2]."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up for rows [tokens, gate then up]: [tokens, half]; may spoil the rows."""


class PlainRows:
    """The `Rows` of any device; on a CPU with compiled loops where these are quicker."""

    mix: Mix | None = None

    @staticmethod
    def norm(weight: Tensor, eps: float) -> Norm:
        """As `Rows.norm`."""
        is_plain = weight.is_cpu and weight.dtype is torch.float32 and weight.dim() == 1
        return CompiledNorm(weight, eps) if is_plain and can_compile() else PlainNorm(weight, eps)

    @staticmethod
    def turn(x: Tensor, angles: Tensor) -> None:
        """As `Rows.turn`."""
        pairs = x.view(*x.shape[:-1], -1, 2)
        if x.dtype is torch.float32:
            torch.view_as_complex(pairs).mul_(angles)
        else:  # there are no complex numbers of half precision
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()).mul_(angles)))

    @staticmethod
    def silu_mul(gate_up: Tensor) -> Tensor:
        """As `Rows.silu_mul`."""
        loop = _gating() if gate_up.is_cpu and gate_up.dtype is torch.float32 else None
        if loop is not None:
            out = gate_up.new_empty(len(gate_up), gate_up.shape[1] // 2)
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
        self._loop = compiled(_norm, _NORM)
        self._weight, self._eps = weight.contiguous().numpy(), np.float32(eps)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        normed = torch.empty_like(x, memory_format=torch.contiguous_format)
        self._loop(x.contiguous().numpy(), self._weight, self._eps, normed.numpy())
        return normed if out is None else out.copy_(normed)


@functools.cache
def _gating() -> Callable[..., None] | None:
    """The loop for `silu_mul`, where there can be one."""
    if not can_compile():
        return None
    from . import gates

    return compiled(gates.silu_mul, gates.SIGNATURE, is_reordered=False)


def _norm(x, weight, eps, normed):  # type: ignore[no-untyped-def]
    for row in range(len(x)):
        numbers, total = x[row], np.float32(0)
        for i in range(len(numbers)):
            total += numbers[i] * numbers[i]
        scale = np.float32(1) / np.sqrt(total / np.float32(len(numbers)) + eps)
        for i in range(len(numbers)):
            normed[row, i] = numbers[i] * scale * weight[i]
