"""The Llama decoder, and with it Mistral, Qwen 2 and Qwen 3: reads as its diagram.

Uses attention kernels through `Attention`.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from ....kernels.cpu.decoder.fused import fused, fused_head
from ....kernels.cpu.decoder.layers import LayerSizes, LayerWeights, Matrix, Past
from ....kernels.cpu.linear.linear import PackedLinear
from ....kernels.cpu.linear.rows import PlainRows, Rows
from ....kernels.cpu.work_items import narrowed_plan
from ....kernels.devices import rows_for
from ....kernels.interface import Attention
from ...api.batch import Ints
from ..config import ModelConfig
from ..inputs import Inputs
from ..parallel import Ranks
from ..pool import KVPool
from .layers import Linear
from .parts import Parts, Weights
from .rotary import RotaryEmbedding

Wanted: TypeAlias = Tensor | None  # indices of rows; None: all
Matrices: TypeAlias = tuple[Matrix | None, Matrix | None]


class Step(NamedTuple):
    """What all layers of one forward pass share. plans: for each window, as in `Inputs`."""

    angles: Tensor
    slots: Tensor
    plans: tuple[Any, ...]
    pool: KVPool
    attention: Attention

    def narrowed(self, wanted: Wanted, window: int) -> Step:
        """For a layer of which only some rows are wanted, whose plan this is."""
        if wanted is None:
            return self
        plan = narrowed_plan(self.attention, self.plans[window], wanted)
        return self._replace(plans=(*self.plans[:window], plan, *self.plans[window + 1 :]))


class SelfAttention:
    """Queries, keys and values by one product; keys and values go into the pool."""

    def __init__(self, parts: Parts, layer: int, window: int) -> None:
        config, name = parts.config, f"model.layers.{layer}.self_attn"
        self.window, self._layer = window, layer
        self._head_dim = config.head_dim
        self._scale = config.head_dim**-0.5
        self._apply_rotary = parts.rows.apply_rotary
        self._num_heads = parts.ranks.part(config.num_heads)
        self._num_rotary_heads = self._num_heads + parts.ranks.part(config.num_kv_heads)
        self.qkv, self.norm, self.out = parts.attention(name)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """What each token of x [tokens, hidden] attends to, [tokens, heads * dim]; `out` is to
        follow."""
        qkv = self.qkv(x).view(len(x), -1, self._head_dim)  # [tokens, heads + 2 kv_heads, dim]
        rotary_heads = qkv[:, : self._num_rotary_heads]
        if self.norm is not None:
            self.norm(rotary_heads, rotary_heads)
        self._apply_rotary(rotary_heads, step.angles)
        q, kv = qkv[:, : self._num_heads], qkv[:, self._num_heads :]
        step.pool.write(self._layer, step.slots, kv)
        layer, plan = step.pool.layers[self._layer], step.plans[self.window]
        return step.attention.attend(q, layer, plan, self._scale).view(len(x), -1)


class FeedForward(Protocol):
    """The second half of a layer, after attention."""

    @property
    def matrices(self) -> Matrices:
        """Gate and up, and down, if that is all; else None for one of them."""

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += this of x, both [tokens, hidden]."""


class MLP:
    """down(silu(gate(x)) * up(x)), gate and up by one product."""

    def __init__(self, parts: Parts, layer: int) -> None:
        name, has_bias = f"model.layers.{layer}.mlp", parts.config.has_mlp_bias
        self._gate_up = parts.split_rows([f"{name}.gate_proj", f"{name}.up_proj"], has_bias)
        self._down = parts.split_columns(f"{name}.down_proj", has_bias)
        self._silu_mul = parts.rows.silu_mul

    @property
    def matrices(self) -> Matrices:
        """As `FeedForward.matrices`."""
        return self._gate_up.matrix, self._down.matrix

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """As `FeedForward.add_to`."""
        self._down.add_to(residual, self._silu_mul(self._gate_up(x)))  # [tokens, ffn]


class Layer:
    """One pre-norm block. window: which of the step's plans is its own."""

    def __init__(self, parts: Parts, layer: int, window: int, ffn: FeedForward) -> None:
        name = f"model.layers.{layer}"
        self._attention_norm = parts.norm(f"{name}.input_layernorm")
        self._attention = SelfAttention(parts, layer, window)
        self._ffn_norm = parts.norm(f"{name}.post_attention_layernorm")
        self._ffn = ffn

    def __call__(self, x: Tensor, step: Step, wanted: Wanted = None) -> Tensor:
        """x [tokens, hidden] and this block's part, or only some rows of it; may change x."""
        step = step.narrowed(wanted, self._attention.window)
        seen = self._attention(self._attention_norm(x), step)
        if wanted is not None:
            x, seen = x.index_select(0, wanted), seen.index_select(0, wanted)
        self._attention.out.add_to(x, seen)
        self._ffn.add_to(x, self._ffn_norm(x))
        return x

    @property
    def weights(self) -> LayerWeights | None:
        """All that this block is; None where it is more than that can say."""
        attention = self._attention
        qkv, out = attention.qkv.matrix, attention.out.matrix
        gate_up, down = self._ffn.matrices
        if qkv is None or out is None or gate_up is None or down is None:
            return None
        norms = self._attention_norm, attention.norm, self._ffn_norm
        return LayerWeights(*norms, qkv, out, gate_up, down, attention.window)


class Llama:
    """embed -> layers -> norm -> head: the `Model` of plain decoders. rows: kernels; None: those
    of the device."""

    ignored_weights: ClassVar = (".rotary_emb.inv_freq",)

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        device: torch.device,
        ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
        rows: Rows | None = None,
    ) -> None:
        rows = rows or rows_for(device)
        parts = Parts(config, weights, ranks, rows)
        self.config = config
        self.windows = tuple(dict.fromkeys(config.windows))
        self.rope = RotaryEmbedding(config.rope, config.head_dim, config.context_len, device)
        self._embed = parts.embedding("model.embed_tokens")
        self._layers = [
            Layer(parts, layer, self.windows.index(window), self.feed_forward(parts, layer))
            for layer, window in enumerate(config.windows)
        ]
        self._norm = parts.norm("model.norm")
        self._head = parts.head("lm_head", self._embed)
        is_plain = type(rows) is PlainRows  # others turn and gate rows as they like
        known = [layer.weights if is_plain else None for layer in self._layers]
        self._fused = fused(_sizes(config), known, is_bf16_kv=self.dtype is torch.bfloat16)
        matrix = self._head.matrix if isinstance(self._head, Linear) else None
        self._fused_head = fused_head(self._norm, matrix)
        self._paneled = (
            matrix.kernel if matrix and isinstance(matrix.kernel, PackedLinear) else None
        )

    @staticmethod
    def feed_forward(parts: Parts, layer: int) -> FeedForward:
        """The second half of a layer, after attention."""
        return MLP(parts, layer)

    @property
    def dtype(self) -> torch.dtype:
        """As `Model.dtype`; rows may have more precision (`row_dtype`)."""
        return self._embed.weight.dtype

    @property
    def device(self) -> torch.device:
        """As `Model.device`."""
        return self._embed.weight.device

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """As `Model.hidden`."""
        x = self._embed(inputs.ids)
        if self._fused is not None and self._fused.fits(x, inputs.plans, pool.storage):
            turns = self.rope.table(inputs.positions)
            past = Past(turns, inputs.positions, inputs.slots, pool.storage)
            return self._fused(x, past, attention, inputs.plans, inputs.wanted)
        angles = self.rope.angles(inputs.positions)
        step = Step(angles, inputs.slots, inputs.plans, pool, attention)
        for layer in self._layers[:-1]:
            x = layer(x, step)
        return self._layers[-1](x, step, inputs.wanted)

    def logits(self, hidden: Tensor, allowed: Ints | None = None) -> Tensor:
        """As `Model.logits`."""
        if allowed is not None and self._paneled is not None:
            spans = self._paneled.spans(allowed)
            if spans is not None:
                return self._paneled.some(self._norm(hidden), spans).float()
        if self._fused_head is not None and self._fused_head.fits(hidden):
            return self._fused_head(hidden)
        return self._head(self._norm(hidden)).float()


def _sizes(config: ModelConfig) -> LayerSizes:
    heads = config.num_heads, config.num_kv_heads, config.head_dim
    return LayerSizes(*heads, config.hidden_size, config.ffn_size, config.norm_eps)
