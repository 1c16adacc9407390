"""The `DecoderBackend` of a CPU: where compiled loops support all layers, rows go through all of
them by one call, or by one of each thread (`stack`); other steps, and other models, go layer by
layer. Where it is not certain which is fastest, they take turns at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...backend import Head, Layer, Layers, LayerSizes, LayerWeights, Matrix, Norm, NormedHead, Step
from ...interface import Ints
from ..jit.jit import can_compile
from ..linear.linear import PackedLinear
from ..linear.rows import CompiledNorm, PlainRows
from .chooser import Chooser
from .layerwise import LayerwiseBackend

if TYPE_CHECKING:  # it needs numba
    from .stack import FusedHead, Stack

_ALIKE = 16  # rows by which steps differ that take about as long for each row


class CpuBackend(LayerwiseBackend):
    """As `DecoderBackend`, on a CPU."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"), PlainRows())

    def layers(self, layers: Sequence[Layer], sizes: LayerSizes, kv_dtype: torch.dtype) -> Layers:
        """As `DecoderBackend.layers`."""
        plain = super().layers(layers, sizes, kv_dtype)
        stack = fused_stack([layer.weights for layer in layers], sizes, kv_dtype)
        return plain if stack is None else FusedLayers(stack, plain)

    def head(self, norm: Norm, head: Head) -> NormedHead:
        """As `DecoderBackend.head`."""
        plain, matrix = super().head(norm, head), head.matrix
        if matrix is None or not isinstance(matrix.kernel, PackedLinear):
            return plain
        return PackedHead(norm, matrix.kernel, fused_head(norm, matrix), plain)


class FusedLayers:
    """The `Layers` of a CPU, in the way that takes the least time."""

    def __init__(self, stack: Stack, plain: Layers) -> None:
        self._stack, self._plain = stack, plain
        self._chooser = Chooser()

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        ways = self._stack.ways(x, step)
        if len(ways) == 1:
            return self._run(ways[0], x, step)
        key = len(x) // _ALIKE, all(plan.is_decode for plan in step.plans)
        return self._chooser.run(key, ways, len(x), lambda way: self._run(way, x, step))

    def _run(self, way: int, x: Tensor, step: Step) -> Tensor:
        return self._stack(x, step, way) if way else self._plain(x, step)


class PackedHead:
    """As `NormedHead`: only the logits that are allowed where these are few; else by one call for
    few rows."""

    def __init__(
        self, norm: Norm, kernel: PackedLinear, fused: FusedHead | None, plain: NormedHead
    ) -> None:
        self._norm, self._kernel, self._fused, self._plain = norm, kernel, fused, plain

    def __call__(self, hidden: Tensor, allowed: Ints | None = None) -> Tensor:
        spans = None if allowed is None else self._kernel.spans(allowed)
        if spans is not None:
            return self._kernel.some(self._norm(hidden), spans)
        if self._fused is not None and self._fused.fits(hidden):
            return self._fused(hidden)
        return self._plain(hidden)


def fused_stack(
    layers: Sequence[LayerWeights | None], sizes: LayerSizes, kv_dtype: torch.dtype
) -> Stack | None:
    """These layers fused; None where loops do not support one of them, or are wrong here."""
    known = [layer for layer in layers if layer is not None and _is_known(layer)]
    if len(known) < len(layers) or not can_compile():
        return None
    from .stack import Stack
    from .trial import is_stack_right

    kernel, group = known[0].qkv.kernel, sizes.num_heads // sizes.num_kv_heads
    assert isinstance(kernel, PackedLinear)
    kind: Any = type(kernel)
    is_bf16_kv = kv_dtype is torch.bfloat16
    if not is_stack_right(kind, kernel.num_terms, sizes.dim, group, is_bf16_kv):
        return None

    return Stack(sizes, known, is_bf16_kv=is_bf16_kv)


def fused_head(norm: Norm, matrix: Matrix) -> FusedHead | None:
    """A norm and the matrix after it by one call; None where loops do not support them."""
    if not isinstance(norm, CompiledNorm) or not isinstance(matrix.kernel, PackedLinear):
        return None
    from .stack import FusedHead

    return FusedHead(norm, matrix)


def _is_known(layer: LayerWeights) -> bool:
    norms = layer.attention_norm, layer.head_norm, layer.ffn_norm
    matrices = layer.qkv, layer.out, layer.gate_up, layer.down
    return all(norm is None or isinstance(norm, CompiledNorm) for norm in norms) and all(
        isinstance(matrix.kernel, PackedLinear) for matrix in matrices
    )
