"""The Llama decoder, and with it Mistral, Qwen 2 and Qwen 3: reads as its diagram.

Uses attention kernels through `Attention`.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeAlias

import torch
from torch import Tensor

from ....kernels.backend import (
    DecoderBackend,
    FusedRows,
    LayerSizes,
    LayerWeights,
    Matrix,
    Rotary,
    Step,
    Wanted,
)
from ....kernels.devices import backend_for
from ....kernels.interface import Attention
from ...api.batch import Ints
from ..config import ModelConfig
from ..inputs import Inputs
from ..model import Tower
from ..parallel import Ranks
from ..pool import KVPool
from .parts import Parts, Weights
from .rotary import RotaryEmbedding

Matrices: TypeAlias = tuple[Matrix | None, Matrix | None]


class SelfAttention:
    """Queries, keys and values by one product; keys and values go into the pool."""

    def __init__(self, parts: Parts, layer: int, window: int) -> None:
        config, name = parts.config, f"model.layers.{layer}.self_attn"
        self.window, self._layer = window, layer
        self._head_dim = config.head_dim
        self._scale = config.head_dim**-0.5
        self._rows = parts.rows
        self._fused = parts.rows if isinstance(parts.rows, FusedRows) else None
        self._num_heads = parts.ranks.part(config.num_heads)
        self._num_rotary_heads = self._num_heads + parts.ranks.part(config.num_kv_heads)
        self.qkv, self.norm, self.out = parts.attention(name)

    def __call__(self, x: Tensor, step: Step, wanted: Wanted) -> Tensor:
        """What each token of x [tokens, hidden] attends to, [tokens, heads * dim]; `out` is to
        follow. wanted: rows that must be right."""
        qkv = self.qkv(x).view(len(x), -1, self._head_dim)  # [tokens, heads + 2 kv_heads, dim]
        layer, plan = step.pool.layers[self._layer], step.plan(self.window, wanted)
        new = qkv, self.norm, step.cos_sin, layer, step.slots
        if self._fused is not None and step.fused_attention is not None:
            return step.fused_attention.attend_new(*new, plan, self._scale).view(len(x), -1)
        if self._fused is None:
            self._rotate_and_write(qkv, step)
        else:
            self._fused.rotate_and_write(*new)
        q = qkv[:, : self._num_heads]
        return step.attention.attend(q, layer, plan, self._scale).view(len(x), -1)

    def _rotate_and_write(self, qkv: Tensor, step: Step) -> None:
        """As `FusedRows.rotate_and_write`, one operation after another."""
        rotary_heads = qkv[:, : self._num_rotary_heads]
        if self.norm is not None:
            self.norm(rotary_heads, rotary_heads)
        self._rows.apply_rotary(rotary_heads, step.cos_sin)
        step.pool.write(self._layer, step.slots, qkv[:, self._num_heads :])


class FeedForward(Protocol):
    """The second half of a layer, after attention."""

    @property
    def matrices(self) -> Matrices:
        """Gate and up, and down, if that is all; else None for one of them."""

    @property
    def num_sums(self) -> int:
        """Sums over all ranks."""

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += this of x, both [tokens, hidden]."""


class MLP:
    """down(silu(gate(x)) * up(x)), gate and up by one product."""

    num_sums = 1

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
        self.num_sums = 1 + ffn.num_sums  # that of the attention's output

    def __call__(self, x: Tensor, step: Step, wanted: Wanted = None) -> Tensor:
        """x [tokens, hidden] and this block's part, or only some rows of it; may change x."""
        seen = self._attention(self._attention_norm(x), step, wanted)
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
    """embed -> layers -> norm -> head: the `Model` of plain decoders. backend: what computes it;
    None: the fastest of the device. tower: makes features of pictures; set by who loads one."""

    ignored_weights: ClassVar = (".rotary_emb.inv_freq",)

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        device: torch.device,
        ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
        backend: DecoderBackend | None = None,
    ) -> None:
        backend = backend or backend_for(device)
        parts = Parts(config, weights, ranks, backend)
        self.config = config
        self.tower: Tower | None = None
        self.windows = tuple(dict.fromkeys(config.windows))
        self.rope = RotaryEmbedding(config.rope, config.head_dim, config.context_len, device)
        self._embed = parts.embedding("model.embed_tokens")
        layers = [
            Layer(parts, layer, self.windows.index(window), self.feed_forward(parts, layer))
            for layer, window in enumerate(config.windows)
        ]
        self._num_sums = [layer.num_sums for layer in layers]
        heads = config.num_heads, config.num_kv_heads, config.head_dim
        sizes = LayerSizes(*heads, config.hidden_size, config.ffn_size, config.norm_eps)
        self._layers = backend.layers(layers, sizes, self.dtype)
        norm = parts.norm("model.norm")
        self._head = backend.head(norm, parts.head("lm_head", self._embed))

    @staticmethod
    def feed_forward(parts: Parts, layer: int) -> FeedForward:
        """What stands behind the attention of a layer."""
        return MLP(parts, layer)

    @property
    def dtype(self) -> torch.dtype:
        """As `Model.dtype`; rows may have more precision (`DecoderBackend.row_dtype`)."""
        return self._embed.weight.dtype

    @property
    def device(self) -> torch.device:
        """As `Model.device`."""
        return self._embed.weight.device

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """As `Model.hidden`."""
        rotary: Rotary = self.rope
        positions = inputs.positions
        if inputs.parts is not None:
            rotary = self.rope.of_parts(inputs.parts)
            positions = torch.arange(len(inputs.ids), device=self.device)
        tokens = positions, inputs.slots, inputs.plans, inputs.wanted
        x = self._embed(inputs.ids)
        if inputs.spliced is not None:
            x[inputs.spliced.tokens] = inputs.spliced.values.to(x.dtype)
        return self._layers(x, Step(*tokens, rotary, pool, attention))

    def sum_rows(self, num_tokens: int, num_wanted: int) -> list[int]:
        """As `RankedModel.sum_rows`: of the embeddings, then of each layer."""
        *others, last = self._num_sums
        return [num_tokens] * (1 + sum(others)) + [num_wanted] * last

    def logits(
        self, hidden: Tensor, allowed: Ints | None = None, out: Tensor | None = None
    ) -> Tensor:
        """As `Model.logits`."""
        logits = self._head(hidden, allowed)
        return logits.float() if out is None else out.copy_(logits)
