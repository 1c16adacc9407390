"""Products with a fixed matrix, laid out as this machine multiplies it best.

Which library is the quicker one for a few rows differs by a factor of two or three between
processors: on a CPU in float32 both are tried once for every shape.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

_TRIAL_ROWS = (1, 8, 32)
_TRIALS = 5
_PATIENCE = 0.05  # seconds after which a slow product is not tried again
_MARGIN = 1.1  # by which packing must win


class Product(Protocol):
    """x [rows, in] times a matrix [in, out]."""

    def __call__(self, x: Tensor) -> Tensor:
        """A new [rows, out]."""

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """total [rows, out] += x times the matrix."""


Layout: TypeAlias = Callable[[Tensor], Product]


class Plain:
    """By torch's own product. On a CPU the matrix lies as [in, out]: quicker for few rows."""

    def __init__(self, weight: Tensor) -> None:
        self._matrix = weight.t().contiguous() if weight.is_cpu else weight.t()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self._matrix)

    def add_to(self, total: Tensor, x: Tensor) -> None:
        total.addmm_(x, self._matrix)


class Packed:
    """By oneDNN, with the matrix packed once in its own order."""

    def __init__(self, weight: Tensor) -> None:
        self._matrix = torch.ops.mkldnn._reorder_linear_weight(weight, _TRIAL_ROWS[-1])
        self._multiply = torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = self._multiply(x, self._matrix, None, "none", [], "")
        return product

    def add_to(self, total: Tensor, x: Tensor) -> None:
        total += self(x)


class Products:
    """Makes products; remembers which layout won for a shape."""

    def __init__(self) -> None:
        self._winners: dict[tuple[torch.Size, torch.dtype], Layout] = {}

    def of(self, weight: Tensor) -> Product:
        """The product with a weight [out, in], which is copied where that is quicker."""
        key = weight.shape, weight.dtype
        if key not in self._winners:
            self._winners[key] = _layout(weight)
        return self._winners[key](weight)


def _layout(weight: Tensor) -> Layout:
    if not weight.is_cpu or weight.dtype is torch.float16 or not _can_pack():
        return Plain
    if weight.dtype is torch.bfloat16:
        return Packed
    plain, packed = _trial(Plain(weight), weight), _trial(Packed(weight), weight)
    return Packed if packed * _MARGIN < plain else Plain


def _can_pack() -> bool:
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in names
    )


@torch.inference_mode()
def _trial(product: Product, weight: Tensor) -> float:
    """Seconds of one product for each of a few numbers of rows, the best of some trials."""
    total = 0.0
    for rows in _TRIAL_ROWS:
        x = torch.ones(rows, weight.shape[1], dtype=weight.dtype)
        total += _best(product, x)
    return total


def _best(product: Product, x: Tensor) -> float:
    seconds: list[float] = []
    while len(seconds) < _TRIALS and sum(seconds) < _PATIENCE:
        seconds.append(_seconds(product, x))
    return min(seconds)


def _seconds(product: Product, x: Tensor) -> float:
    start = time.perf_counter()
    product(x)
    return time.perf_counter() - start
