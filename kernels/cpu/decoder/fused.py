"""Which layers can be computed by loops that call one another (`stack`). Needs numba for nothing
but that."""

from __future__ import annotations

from collections.abc import Sequence

from ..jit.jit import can_compile
from ..linear.products import Paneled
from ..linear.rows import CompiledNorm, Norm
from .layers import Fused, FusedHead, LayerSizes, LayerWeights, Matrix


def fused(
    sizes: LayerSizes, layers: Sequence[LayerWeights | None], is_halved: bool = False
) -> Fused | None:
    """These layers; None where loops cannot do what one of them does. is_halved: whether keys and
    values are bfloat16."""
    if not can_compile():
        return None
    known = [layer for layer in layers if layer is not None and _is_known(layer)]
    if len(known) < len(layers):
        return None
    from .stack import Stack

    return Stack(sizes, known, is_halved=is_halved)


def fused_head(norm: Norm, matrix: Matrix | None) -> FusedHead | None:
    """A norm and the matrix behind it; None where loops cannot do what they do."""
    if not can_compile() or not isinstance(norm, CompiledNorm):
        return None
    if matrix is None or not isinstance(matrix.product, Paneled):
        return None
    from .stack import Head

    return Head(norm, matrix)


def _is_known(layer: LayerWeights) -> bool:
    norms = layer.attention_norm, layer.head_norm, layer.ffn_norm
    matrices = layer.qkv, layer.out, layer.gate_up, layer.down
    return all(norm is None or isinstance(norm, CompiledNorm) for norm in norms) and all(
        isinstance(matrix.product, Paneled) for matrix in matrices
    )
