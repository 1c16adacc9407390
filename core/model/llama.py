"""The Llama decoder: reads as its diagram. Knows the attention kernel only by its face."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import Attention
from .config import ModelConfig
from .inputs import Inputs
from .layers import Embedding, Linear, RMSNorm, RotaryEmbedding
from .parallel import Ranks
from .pool import KVPool
from .weights import Checkpoint


class SelfAttention:
    """Queries, keys and values by one product; keys and values go into the pool."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, layer: int) -> None:
        name = f"model.layers.{layer}.self_attn"
        self._layer = layer
        self._num_heads = config.num_heads
        self._num_kv_heads = config.num_kv_heads
        self._head_dim = config.head_dim
        self._qkv = _fuse(
            [
                _linear(checkpoint, f"{name}.{part}_proj", config.has_attention_bias)
                for part in "qkv"
            ],
            num_turned=2,
            head_dim=config.head_dim,
        )
        self._out = Linear(*_linear(checkpoint, f"{name}.o_proj", config.has_attention_bias))

    def add_to(
        self, residual: Tensor, x: Tensor, inputs: Inputs, pool: KVPool, attention: Attention
    ) -> None:
        """residual += attention of x, both [tokens, hidden]."""
        heads, kv_heads = self._num_heads, self._num_kv_heads
        qkv = self._qkv(x).view(len(x), -1, self._head_dim)  # [tokens, heads + 2 kv_heads, dim]
        RotaryEmbedding.turn(qkv[:, : heads + kv_heads], inputs.angles)
        pool.write(self._layer, inputs.slots, qkv[:, heads:])
        out = attention.attend(qkv[:, :heads], pool.layers[self._layer], inputs.plan)
        self._out.add_to(residual, out.view(len(x), -1))


class FeedForward:
    """down(silu(gate(x)) * up(x)), gate and up by one product."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, layer: int) -> None:
        name = f"model.layers.{layer}.mlp"
        parts = [
            _linear(checkpoint, f"{name}.{part}_proj", config.has_mlp_bias)
            for part in ("gate", "up")
        ]
        self._gate_up = _fuse(parts)
        self._down = Linear(*_linear(checkpoint, f"{name}.down_proj", config.has_mlp_bias))

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual += this of x, both [tokens, hidden]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)  # [tokens, ffn] each
        self._down.add_to(residual, F.silu(gate).mul_(up))


class Layer:
    """One pre-norm block."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, layer: int) -> None:
        name = f"model.layers.{layer}"
        self._attention_norm = _norm(config, checkpoint, f"{name}.input_layernorm")
        self._attention = SelfAttention(config, checkpoint, layer)
        self._ffn_norm = _norm(config, checkpoint, f"{name}.post_attention_layernorm")
        self._ffn = FeedForward(config, checkpoint, layer)

    def __call__(self, x: Tensor, inputs: Inputs, pool: KVPool, attention: Attention) -> None:
        """Add this block's part to x [tokens, hidden]."""
        self._attention.add_to(x, self._attention_norm(x), inputs, pool, attention)
        self._ffn.add_to(x, self._ffn_norm(x))


class Llama:
    """embed -> layers -> norm -> head."""

    ignored_weights = (".rotary_emb.inv_freq",)

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, device: torch.device) -> None:
        self.config = config
        self.rope = RotaryEmbedding(config.rope, config.head_dim, device)
        self._embed = Embedding(checkpoint.take("model.embed_tokens.weight"))
        self._layers = [Layer(config, checkpoint, layer) for layer in range(config.num_layers)]
        self._norm = _norm(config, checkpoint, "model.norm")
        self._head = Linear(
            self._embed.weight if config.is_tied else checkpoint.take("lm_head.weight")
        )

    @property
    def dtype(self) -> torch.dtype:
        return self._embed.weight.dtype

    @property
    def device(self) -> torch.device:
        return self._embed.weight.device

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """Last hidden states [tokens, hidden] of the new tokens; writes their KV to the pool."""
        x = self._embed(inputs.ids)
        for layer in self._layers:
            layer(x, inputs, pool, attention)
        return x

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


def _norm(config: ModelConfig, checkpoint: Checkpoint, name: str) -> RMSNorm:
    return RMSNorm(checkpoint.take(f"{name}.weight"), config.norm_eps)


def _linear(checkpoint: Checkpoint, name: str, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    bias = checkpoint.take(f"{name}.bias") if has_bias else None
    return checkpoint.take(f"{name}.weight"), bias


def _fuse(
    parts: list[tuple[Tensor, Tensor | None]], num_turned: int = 0, head_dim: int = 0
) -> Linear:
    """One product for several; the first `num_turned` are brought into rotary order."""
    weights = [weight for weight, _ in parts]
    biases = [bias for _, bias in parts if bias is not None]
    for group in filter(None, (weights, biases)):
        for i in range(num_turned):
            group[i] = RotaryEmbedding.interleave(group[i], head_dim)
    return Linear(torch.cat(weights), torch.cat(biases) if biases else None)
