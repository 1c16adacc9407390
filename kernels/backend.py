"""Interfaces of what computes a decoder on one device: linear layers, row-wise operations, all
layers, and the output head. `devices.backend_for` chooses. Attention: `interface`.

A model is written with these alone, so that every faster kernel below them may be removed without
a change to a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from .interface import Attention, Ints, Narrowing

Wanted: TypeAlias = Tensor | None  # indices of rows; None: all


class LinearKernel(Protocol):
    """x [rows, in] times a fixed matrix [in, out]."""

    def __call__(self, x: Tensor) -> Tensor:
        """A new [rows, out]."""

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """total [rows, out] += x times the matrix."""


class Matrix(NamedTuple):
    """A linear kernel, and the bias [width] after it."""

    kernel: LinearKernel
    bias: Tensor | None


class Norm(Protocol):
    """Scales every row to root mean square 1, then by a weight [dim], or [heads, dim]."""

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x [tokens, dim], or [tokens, heads, dim]; into `out`, which may be x, or a new tensor."""


class FusedMoE(Protocol):
    """A mixture of experts whose weights lie in one tensor."""

    def __call__(
        self,
        x: Tensor,
        w1: Tensor,
        w2: Tensor,
        router_logits: Tensor,
        top_k: int,
        total: Tensor | None = None,
    ) -> Tensor:
        """For x [tokens, hidden] the sum of w2(silu(gate) * up) over the top_k most likely experts
        by router_logits [tokens, experts], weighted by their probabilities, which are scaled to sum
        to 1: added to total [tokens, hidden], or a new tensor of x's dtype. w1: [experts, gate then
        up, hidden]. w2: [experts, hidden, ffn]."""


class Rows(Protocol):
    """Row-wise operations on one device."""

    @property
    def fused_moe(self) -> FusedMoE | None:
        """None: each expert is computed by itself."""

    def norm(self, weight: Tensor, eps: float) -> Norm:
        """The norm with a weight."""

    def apply_rotary(self, x: Tensor, cos_sin: Tensor) -> None:
        """Rotate the pairs (0, 1), (2, 3), ... of x [tokens, heads, dim] in place by complex
        cos_sin [tokens, 1, dim / 2]."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up for rows [tokens, gate then up]: [tokens, half]; may spoil the rows."""


@runtime_checkable
class FusedRows(Rows, Protocol):
    """Row-wise operations of a device on which each launch costs time."""

    def rotate_and_write(
        self, qkv: Tensor, norm: Norm | None, cos_sin: Tensor, kv: Tensor, slots: Tensor
    ) -> None:
        """Scale queries and keys of qkv [tokens, heads + 2 kv_heads, dim] by a norm of theirs,
        rotate them by cos_sin, and put keys and values into slots [tokens] of kv [2, kv_heads,
        slots, dim]: the numbers of `norm`, `apply_rotary` and `KVMemory.write`. Queries change in
        place; the keys and values in qkv are undefined afterwards."""


@runtime_checkable
class FusedAttention(Attention, Protocol):
    """Attention that also takes new keys and values into the pool, for rows that are fused."""

    def attend_new(
        self,
        qkv: Tensor,
        norm: Norm | None,
        cos_sin: Tensor,
        kv: Tensor,
        slots: Tensor,
        plan: Any,
        scale: float,
    ) -> Tensor:
        """As `FusedRows.rotate_and_write` and then `attend`, in fewer launches, where no sequence
        reads new keys of another; all of qkv is undefined afterwards."""


class Rotary(Protocol):
    """Rotations by position, as complex numbers."""

    def angles(self, positions: Tensor) -> Tensor:
        """Rotations [tokens, 1, dim / 2] at positions [tokens]."""

    def table(self, positions: Tensor) -> Tensor:
        """Rotations [n, 1, dim / 2] at 0, 1, 2, ... up to these positions or further."""


class KVMemory(Protocol):
    """The keys and values of all layers, by slots."""

    @property
    def storage(self) -> Tensor:
        """[layers, 2, kv_heads, slots, dim]."""

    @property
    def layers(self) -> tuple[Tensor, ...]:
        """The same memory, layer by layer."""

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Put kv [tokens, kv_heads of keys, then of values, dim] into slots [tokens] of a layer."""


@dataclass(frozen=True)
class Step:
    """What all layers of one forward pass share. positions, slots: [tokens]. plans: one for each
    window of the model. wanted: rows whose last hidden state is needed."""

    positions: Tensor
    slots: Tensor
    plans: tuple[Any, ...]
    wanted: Wanted
    rotary: Rotary
    pool: KVMemory
    attention: Attention

    @cached_property
    def cos_sin(self) -> Tensor:
        """Rotations [tokens, 1, dim / 2] of the step's tokens."""
        return self.rotary.angles(self.positions)

    @cached_property
    def fused_attention(self) -> FusedAttention | None:
        """The attention, where it is one."""
        return self.attention if isinstance(self.attention, FusedAttention) else None

    def plan(self, window: int, wanted: Wanted) -> Any:
        """The plan of a window, narrowed where only some rows of a layer are wanted and attention
        supports it."""
        if wanted is None or not isinstance(self.attention, Narrowing):
            return self.plans[window]
        return self.attention.narrowed(self.plans[window], wanted.numpy())


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


class Layer(Protocol):
    """One layer of a decoder."""

    @property
    def weights(self) -> LayerWeights | None:
        """All that the layer is; None where it is more than that can say."""

    def __call__(self, x: Tensor, step: Step, wanted: Wanted = None) -> Tensor:
        """x [tokens, hidden] and this layer's part, or only some rows of it; may change x. Keys and
        values go into the pool."""


class Layers(Protocol):
    """All layers of a decoder."""

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """What the layers make of x [tokens, hidden], which may be changed: the wanted rows."""


class Head(Protocol):
    """The output matrix."""

    @property
    def matrix(self) -> Matrix | None:
        """All that it is; None for more than a linear kernel and a bias."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [rows, vocabulary] of x [rows, hidden]."""


class NormedHead(Protocol):
    """A norm, and the output matrix after it."""

    def __call__(self, hidden: Tensor, allowed: Ints | None = None) -> Tensor:
        """Logits [rows, vocabulary] of hidden states [rows, hidden]. allowed: packed bits, 32
        tokens a word, of those whose logits are needed; others may be any finite number."""


class DecoderBackend(Protocol):
    """All of a decoder on one device, but for attention. However layers are computed, the bits are
    those of one after another."""

    def linear(self, weight: Tensor) -> LinearKernel:
        """The kernel for a weight [out, in], which is copied where that is faster. Rows are of
        `row_dtype`."""

    def row_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of rows for weights of some dtype, and of activations between them."""

    @property
    def rows(self) -> Rows:
        """Row-wise operations."""

    def layers(self, layers: Sequence[Layer], sizes: LayerSizes, kv_dtype: torch.dtype) -> Layers:
        """Consecutive layers, whose keys and values are of a dtype."""

    def head(self, norm: Norm, head: Head) -> NormedHead:
        """A norm and the output matrix."""
