"""What the layers of a decoder are made of, for loops that compute all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from ...interface import Attention
from ..linear.linear import LinearKernel
from ..linear.rows import Norm


class Matrix(NamedTuple):
    """A linear kernel, and the bias [width] after it."""

    kernel: LinearKernel
    bias: Tensor | None


class LayerWeights(NamedTuple):
    """A layer: attention over the plans of one window of the step's, and a gated feed-forward."""

    attention_norm: Norm
    head_norm: Norm | None
    ffn_norm: Norm
    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix
    window: int


class LayerSizes(NamedTuple):
    """What all layers have in common."""

    num_heads: int
    num_kv_heads: int
    dim: int
    hidden: int
    ffn: int
    eps: float


class Past(NamedTuple):
    """What a step reads and writes beside its rows: cos_sin_cache [positions, 1, dim / 2]
    (complex), of which each row uses the entry of its position [rows], and a pool [layers, 2,
    kv_heads, slots, dim], of which it writes a slot [rows]."""

    cos_sin_cache: Tensor
    positions: Tensor
    slots: Tensor
    storage: Tensor


class FusedHead(Protocol):
    """A norm and the matrix after it, with the same bits as one by one."""

    def fits(self, x: Tensor) -> bool:
        """Whether x [rows, hidden] has so few rows that this is quicker."""

    def __call__(self, x: Tensor) -> Tensor:
        """A new [rows, width]."""


class Fused(Protocol):
    """All layers of a decoder, with the same bits as one by one."""

    def fits(self, x: Tensor, plans: Sequence[Any], storage: Tensor) -> bool:
        """Whether this can do a step of these plans, one for each window, for x [rows, hidden], and
        the rows are so few that it is quicker."""

    def __call__(
        self,
        x: Tensor,
        past: Past,
        attention: Attention,
        plans: Sequence[Any],
        wanted: Tensor | None = None,
    ) -> Tensor:
        """What the layers make of x [rows, hidden], which is changed, or the wanted rows of it;
        keys and values go into the pool."""
