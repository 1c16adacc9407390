"""Which layers can be computed by loops that call one another (`stack`). Needs numba for nothing
but that."""

from __future__ import annotations

from collections.abc import Sequence

from ..jit.jit import can_compile
from ..linear.linear import PackedLinear
from ..linear.rows import CompiledNorm, Norm
from .layers import Fused, FusedHead, LayerSizes, LayerWeights, Matrix


def fused(
    sizes: LayerSizes, layers: Sequence[LayerWeights | None], is_bf16_kv: bool = False
) -> Fused | None:
    """These layers fused; None where loops do not support one of them. is_bf16_kv: whether keys and
    values are bfloat16."""
    if not can_compile():
        return None
    known = [layer for layer in layers if layer is not None and _is_known(layer)]
    if len(known) < len(layers):
        return None
    from .stack import Stack

    return Stack(sizes, known, is_bf16_kv=is_bf16_kv)


def fused_head(norm: Norm, matrix: Matrix | None) -> FusedHead | None:
    """A norm and the matrix after it fused; None where loops do not support them."""
    if not can_compile() or not isinstance(norm, CompiledNorm):
        return None
    if matrix is None or not isinstance(matrix.kernel, PackedLinear):
        return None
    from .stack import Head

    return Head(norm, matrix)


def _is_known(layer: LayerWeights) -> bool:
    norms = layer.attention_norm, layer.head_norm, layer.ffn_norm
    matrices = layer.qkv, layer.out, layer.gate_up, layer.down
    return all(norm is None or isinstance(norm, CompiledNorm) for norm in norms) and all(
        isinstance(matrix.kernel, PackedLinear) for matrix in matrices
    )
