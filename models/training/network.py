"""The network as it is trained: a Llama whose products run in bfloat16, exported to the names of
transformers.

Training only: whole rows, no cache. Serving uses the checkpoint that `save_checkpoint` writes.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from .tokenizer import CONTEXT_LEN, SPECIAL, VOCABULARY_SIZE
from .world.document import BOS, END_TURN, EOS


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the network; the names are those of a Llama config."""

    num_hidden_layers: int = 5
    hidden_size: int = 256
    intermediate_size: int = 448
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    vocab_size: int = VOCABULARY_SIZE
    max_position_embeddings: int = CONTEXT_LEN
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn x [batch, len, heads, dim] by cos and sin [batch, len, 1, dim / 2], halves paired as
    Llama does.
    """
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rope(positions: Tensor, shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions [batch, len], each [batch, len, 1, dim / 2]."""
    half = torch.arange(0, shape.head_dim, 2) / shape.head_dim
    angles = positions[..., None].float() * shape.rope_theta**-half
    return angles.cos().unsqueeze(2).to(dtype), angles.sin().unsqueeze(2).to(dtype)


class Layer(nn.Module):
    """One pre-norm block; the output projections start at zero, so it starts as the identity."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        # A product with the matrix of a name; another one may stand in its place.
        self.product: Callable[[Tensor, str], Tensor] = self._product
        d, dim = shape.hidden_size, shape.head_dim
        q_dim, kv_dim = shape.num_attention_heads * dim, shape.num_key_value_heads * dim
        self.input_layernorm = nn.Parameter(torch.ones(d))
        self.post_attention_layernorm = nn.Parameter(torch.ones(d))
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Parameter(torch.randn(n, d) / d**0.5) for n in (q_dim, kv_dim, kv_dim)
        )
        self.o_proj = nn.Parameter(torch.zeros(d, q_dim))
        self.gate_proj, self.up_proj = (
            nn.Parameter(torch.randn(shape.intermediate_size, d) / d**0.5) for _ in range(2)
        )
        self.down_proj = nn.Parameter(torch.zeros(d, shape.intermediate_size))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self._attend(self._norm(x, self.input_layernorm), cos, sin, mask)
        h = self._norm(x, self.post_attention_layernorm)
        gated = F.silu(self.product(h, "gate_proj")) * self.product(h, "up_proj")
        return x + self.product(gated, "down_proj")

    def _product(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.get_parameter(name))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.shape.rms_norm_eps)

    def _attend(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (
            self.product(x, name).unflatten(-1, (-1, self.shape.head_dim))
            for name in ("q_proj", "k_proj", "v_proj")
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        groups = self.shape.num_attention_heads // self.shape.num_key_value_heads
        k, v = (t.repeat_interleave(groups, dim=2) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if mask is None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # on CPUs, the fused attention takes three times as long with a mask
            out = (q * self.shape.head_dim**-0.5 @ k.mT + mask).softmax(-1) @ v
        return self.product(out.transpose(1, 2).flatten(2), "o_proj")


class Network(nn.Module):
    """A Llama with tied embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Parameter(0.1 * torch.randn(shape.vocab_size, shape.hidden_size))
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.Parameter(torch.ones(shape.hidden_size))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Final hidden states [batch, len, d] of tokens [batch, len] at the given positions."""
        cos, sin = rope(positions, self.shape, self.embed_tokens.dtype)
        x = F.embedding(tokens, self.embed_tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.rms_norm(x, self.norm.shape, self.norm, self.shape.rms_norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embed_tokens)


def llama_name(name: str) -> str:
    """The name of a parameter in `LlamaForCausalLM`."""
    for module, names in {
        "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
        "mlp": ("gate_proj", "up_proj", "down_proj"),
    }.items():
        for projection in names:
            name = name.replace(f".{projection}", f".{module}.{projection}")
    return f"model.{name}.weight"


@torch.no_grad()
def load_weights(network: Network, folder: Path) -> None:
    """Set the parameters to those of a checkpoint that `save_checkpoint` wrote for this shape."""
    tensors = load((folder / "model.safetensors").read_bytes())
    for name, parameter in network.named_parameters():
        parameter.copy_(tensors[llama_name(name)])


def save_checkpoint(network: Network, weights: dict[str, Tensor], folder: Path) -> None:
    """Write `weights` (by the names of `network`) to model.safetensors in bfloat16, and the two
    config files.
    """
    tensors = {llama_name(n): w.to("cpu", torch.bfloat16).contiguous() for n, w in weights.items()}
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    ids = {
        "bos_token_id": SPECIAL.index(BOS),
        "eos_token_id": [SPECIAL.index(EOS), SPECIAL.index(END_TURN)],
        "pad_token_id": 0,
    }
    shape = asdict(network.shape)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **shape,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape["rope_theta"]},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        **ids,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(
        json.dumps({**ids, "do_sample": False}, indent=2) + "\n"
    )
