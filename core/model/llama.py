"""The Llama decoder: reads as its diagram. Knows the attention kernel only by its face."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import Attention
from .config import ModelConfig
from .inputs import Inputs
from .layers import RotaryEmbedding
from .parallel import Ranks
from .parts import Parts, Weights
from .pool import KVPool
from .weights import Checkpoint

Rows: TypeAlias = Tensor | None  # indices of rows; None: all


class SelfAttention:
    """Queries, keys and values by one product; keys and values go into the pool."""

    def __init__(self, parts: Parts, layer: int) -> None:
        config, name = parts.config, f"model.layers.{layer}.self_attn"
        self._layer = layer
        self.out = parts.linear([f"{name}.o_proj"], config.has_attention_bias)
        self._num_heads = config.num_heads
        self._num_turned = config.num_heads + config.num_kv_heads  # queries' and keys' heads
        self._head_dim = config.head_dim
        qkv = [f"{name}.{part}_proj" for part in "qkv"]
        self._qkv = parts.linear(qkv, config.has_attention_bias, num_turned=2)

    def __call__(self, x: Tensor, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """What each token of x [tokens, hidden] attends to, [tokens, heads * dim]; `out` is to
        follow."""
        qkv = self._qkv(x).view(len(x), -1, self._head_dim)  # [tokens, heads + 2 kv_heads, dim]
        RotaryEmbedding.turn(qkv[:, : self._num_turned], inputs.angles)
        q, kv = qkv[:, : self._num_heads], qkv[:, self._num_heads :]
        pool.write(self._layer, inputs.slots, kv)
        return attention.attend(q, pool.layers[self._layer], inputs.plan).view(len(x), -1)


class FeedForward:
    """down(silu(gate(x)) * up(x)), gate and up by one product."""

    def __init__(self, parts: Parts, layer: int) -> None:
        name, has_bias = f"model.layers.{layer}.mlp", parts.config.has_mlp_bias
        self._gate_up = parts.linear([f"{name}.gate_proj", f"{name}.up_proj"], has_bias)
        self._down = parts.linear([f"{name}.down_proj"], has_bias)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += this of x, both [tokens, hidden]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)  # [tokens, ffn] each
        self._down.add_to(residual, F.silu(gate).mul_(up))


class Layer:
    """One pre-norm block."""

    def __init__(self, parts: Parts, layer: int) -> None:
        name = f"model.layers.{layer}"
        self._attention_norm = parts.norm(f"{name}.input_layernorm")
        self._attention = SelfAttention(parts, layer)
        self._ffn_norm = parts.norm(f"{name}.post_attention_layernorm")
        self._ffn = FeedForward(parts, layer)

    def __call__(
        self, x: Tensor, inputs: Inputs, pool: KVPool, attention: Attention, rows: Rows = None
    ) -> Tensor:
        """x [tokens, hidden] and this block's part, or only some rows of it; may change x."""
        seen = self._attention(self._attention_norm(x), inputs, pool, attention)
        if rows is not None:
            x, seen = x.index_select(0, rows), seen.index_select(0, rows)
        self._attention.out.add_to(x, seen)
        self._ffn.add_to(x, self._ffn_norm(x))
        return x


class Llama:
    """embed -> layers -> norm -> head."""

    ignored_weights = (".rotary_emb.inv_freq",)

    def __init__(self, config: ModelConfig, weights: Weights, device: torch.device) -> None:
        parts = Parts(config, weights)
        self.config = config
        self.rope = RotaryEmbedding(config.rope, config.head_dim, device)
        self._embed = parts.embedding("model.embed_tokens")
        self._layers = [Layer(parts, layer) for layer in range(config.num_layers)]
        self._norm = parts.norm("model.norm")
        self._head = parts.head("lm_head", self._embed)

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights, and so of keys and values."""
        return self._embed.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self._embed.weight.device

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """Last hidden states [rows, hidden] of the wanted tokens; KV of all goes to the pool."""
        x = self._embed(inputs.ids)
        for layer in self._layers[:-1]:
            x = layer(x, inputs, pool, attention)
        return self._layers[-1](x, inputs, pool, attention, inputs.wanted)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocabulary] in float32 of hidden states [rows, hidden]."""
        return self._head(self._norm(hidden)).float()


def load_model(
    folder: str | Path, config: ModelConfig, dtype: torch.dtype, device: torch.device, ranks: Ranks
) -> Llama:
    """Load a checkpoint whole, or raise InvalidModel."""
    assert ranks.size == 1
    ignored = (*Llama.ignored_weights, *(("lm_head.weight",) if config.is_tied else ()))
    with Checkpoint(folder, config.weight_shapes(), dtype, device, ignored) as checkpoint:
        return Llama(config, checkpoint, device)
