"""The `DecoderBackend` of any device: one layer after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...backend import Head, Layer, Layers, LayerSizes, LinearKernel, Norm, NormedHead, Rows, Step
from ...interface import Ints
from ..linear.linear import linear_kernel, row_dtype


class LayerwiseBackend:
    """As `DecoderBackend`, by the row-wise operations of a device."""

    def __init__(self, device: torch.device, rows: Rows) -> None:
        self.rows = rows
        self._device = device

    def linear(self, weight: Tensor) -> LinearKernel:
        """As `DecoderBackend.linear`."""
        return linear_kernel(weight)

    def row_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """As `DecoderBackend.row_dtype`."""
        return row_dtype(dtype, self._device)

    def layers(self, layers: Sequence[Layer], sizes: LayerSizes, kv_dtype: torch.dtype) -> Layers:
        """As `DecoderBackend.layers`."""
        return Layerwise(layers)

    def head(self, norm: Norm, head: Head) -> NormedHead:
        """As `DecoderBackend.head`."""
        return PlainHead(norm, head)


class Layerwise:
    """The `Layers` of any device."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._first, self._last = layers[:-1], layers[-1]

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        for layer in self._first:
            x = layer(x, step)
        return self._last(x, step, step.wanted)


class PlainHead:
    """The `NormedHead` of any device: all logits."""

    def __init__(self, norm: Norm, head: Head) -> None:
        self._norm, self._head = norm, head

    def __call__(self, hidden: Tensor, allowed: Ints | None = None) -> Tensor:
        return self._head(self._norm(hidden))
