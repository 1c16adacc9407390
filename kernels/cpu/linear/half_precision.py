"""Linear kernels for half precision on a CPU: by its instructions, where the processor has some, or
in float32."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...backend import LinearKernel
from ..jit.features import has

_PACKED_ROWS = 32  # for which oneDNN chooses its order
_TRIED = 16  # rows and columns of a matrix on which oneDNN is tried
# One of these, and there are products of such numbers that are worth calling.
_INSTRUCTIONS = {torch.bfloat16: ("avx512bf16", "bf16"), torch.float16: ("avx512fp16", "fullfp16")}
HALVES = frozenset(_INSTRUCTIONS)


class OneDnnLinear:
    """By oneDNN, with the weight packed once in its own order."""

    def __init__(self, weight: Tensor) -> None:
        self._matrix = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_ROWS)
        self._multiply = torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = self._multiply(x, self._matrix, None, "none", [], "")
        return result

    def add_to(self, total: Tensor, x: Tensor) -> None:
        total += self(x)


class ConvertedLinear:
    """By a float32 kernel of the same weight, for half-precision rows: sums are rounded once.

    inner: of the weight in float32. A bfloat16 weight keeps its size (`PackedBf16Linear`), a
    float16 one takes twice as much.
    """

    def __init__(self, inner: LinearKernel) -> None:
        self.inner = inner

    def __call__(self, x: Tensor) -> Tensor:
        return self.inner(x.float()).to(x.dtype)

    def add_to(self, total: Tensor, x: Tensor) -> None:
        total.copy_(self.inner(x.float()).add_(total))


def is_multiplied(dtype: torch.dtype) -> bool:
    """Whether the processor multiplies such numbers of half precision, and torch's libraries do."""
    has_instructions = any(has(name) for name in _INSTRUCTIONS[dtype])
    return has_instructions and (dtype is torch.float16 or can_pack(dtype))


@functools.cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN packs and multiplies such numbers here, which depends on the build, the
    processor and settings: tried on a small matrix."""
    weight = torch.ones(_TRIED, _TRIED, dtype=dtype)
    try:
        return torch.equal(OneDnnLinear(weight)(weight), torch.full_like(weight, _TRIED))
    except (RuntimeError, AttributeError):
        return False
