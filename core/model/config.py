"""What a checkpoint says about itself: sizes, position encoding, special tokens.

Reads `config.json` and `generation_config.json` as transformers writes them, with the keys of
version 5 or the older ones. Knows no torch, so that a checkpoint can be judged without loading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ..protocol import InvalidModel
from .keys import REQUIRED, Keys

SUPPORTED = ("LlamaForCausalLM",)
DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
RopeKind: TypeAlias = Literal["default", "linear", "llama3"]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How positions turn queries and keys. `factor` and what follows: of the scaled kinds."""

    theta: float = 10_000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_len: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of one decoder model.

    context_len: positions the model was made for.
    dtype: of the stored weights.
    eos_ids: tokens that end an answer, in the checkpoint's order.
    """

    architecture: str
    vocabulary_size: int
    num_layers: int
    hidden_size: int
    ffn_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_len: int
    norm_eps: float
    rope: RopeConfig
    is_tied: bool
    has_attention_bias: bool
    has_mlp_bias: bool
    dtype: str
    bos_id: int | None
    eos_ids: tuple[int, ...]

    @classmethod
    def from_folder(cls, folder: str | Path) -> ModelConfig:
        """Read a checkpoint's configuration. Raises InvalidModel naming file, key and value."""
        keys = Keys.read(Path(folder) / "config.json")
        path = Path(folder) / "generation_config.json"
        generation = Keys.read(path) if path.exists() else Keys(path, {})
        architecture = _architecture(keys)
        hidden_size, num_heads = keys.count("hidden_size"), keys.count("num_attention_heads")
        config = cls(
            architecture=architecture,
            vocabulary_size=keys.count("vocab_size"),
            num_layers=keys.count("num_hidden_layers"),
            hidden_size=hidden_size,
            ffn_size=keys.count("intermediate_size"),
            num_heads=num_heads,
            num_kv_heads=keys.count("num_key_value_heads", num_heads),
            head_dim=keys.count("head_dim", hidden_size // num_heads),
            context_len=keys.count("max_position_embeddings", 2048),
            norm_eps=keys.number("rms_norm_eps", 1e-6),
            rope=_rope(keys),
            is_tied=keys.flag("tie_word_embeddings", False),
            has_attention_bias=keys.flag("attention_bias", False),
            has_mlp_bias=keys.flag("mlp_bias", False),
            dtype=_dtype(keys),
            bos_id=_token_id(keys, "bos_token_id"),
            eos_ids=_token_ids(generation, "eos_token_id") or _token_ids(keys, "eos_token_id"),
        )
        _check(keys, config)
        return config

    def weight_shapes(self) -> dict[str, Shape]:
        """Name and shape of every tensor that the checkpoint must hold."""
        shapes: dict[str, Shape] = {
            "model.embed_tokens.weight": (self.vocabulary_size, self.hidden_size),
            "model.norm.weight": (self.hidden_size,),
        }
        if not self.is_tied:
            shapes["lm_head.weight"] = (self.vocabulary_size, self.hidden_size)
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            shapes.update({prefix + name: shape for name, shape in self._layer_shapes().items()})
        return shapes

    def _layer_shapes(self) -> dict[str, Shape]:
        q_dim, kv_dim = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, Shape] = {
            "input_layernorm.weight": (self.hidden_size,),
            "post_attention_layernorm.weight": (self.hidden_size,),
        }
        linears = {
            "self_attn.q_proj": (q_dim, self.hidden_size, self.has_attention_bias),
            "self_attn.k_proj": (kv_dim, self.hidden_size, self.has_attention_bias),
            "self_attn.v_proj": (kv_dim, self.hidden_size, self.has_attention_bias),
            "self_attn.o_proj": (self.hidden_size, q_dim, self.has_attention_bias),
            "mlp.gate_proj": (self.ffn_size, self.hidden_size, self.has_mlp_bias),
            "mlp.up_proj": (self.ffn_size, self.hidden_size, self.has_mlp_bias),
            "mlp.down_proj": (self.hidden_size, self.ffn_size, self.has_mlp_bias),
        }
        for name, (out_dim, in_dim, has_bias) in linears.items():
            shapes[f"{name}.weight"] = (out_dim, in_dim)
            if has_bias:
                shapes[f"{name}.bias"] = (out_dim,)
        return shapes

    def num_parameters(self) -> int:
        """Numbers that the checkpoint holds, a tied output matrix counted once."""
        return sum(_product(shape) for shape in self.weight_shapes().values())

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Bytes of one slot over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[dtype]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What running a checkpoint would take; `problem` says why it cannot be run, or is None."""

    num_parameters: int = 0
    weight_bytes: int = 0
    kv_bytes_per_token: int = 0
    problem: str | None = None


def footprint(folder: str | Path, dtype: str) -> Footprint:
    """Judge a checkpoint by its configuration alone; `dtype` is that of the loaded weights."""
    try:
        config = ModelConfig.from_folder(folder)
    except InvalidModel as error:
        return Footprint(problem=str(error))
    count = config.num_parameters()
    return Footprint(count, count * DTYPE_BYTES[dtype], config.kv_bytes_per_token(dtype))


def _architecture(keys: Keys) -> str:
    names = keys.get("architectures", REQUIRED, (list,), f"one of {', '.join(SUPPORTED)}")
    if len(names) != 1 or names[0] not in SUPPORTED:
        raise keys.refuse("architectures", f"one of {', '.join(SUPPORTED)}")
    return str(names[0])


def _dtype(keys: Keys) -> str:
    key = "dtype" if "dtype" in keys.values else "torch_dtype"
    name = keys.word(key, "float32")
    if name not in DTYPE_BYTES:
        raise keys.refuse(key, ", ".join(DTYPE_BYTES))
    return name


def _rope(keys: Keys) -> RopeConfig:
    """Position encoding from `rope_parameters`, or from `rope_theta` and `rope_scaling`."""
    scaling = _rope_keys(keys)
    theta = scaling.number("rope_theta", keys.number("rope_theta", 10_000.0))
    key = "type" if "rope_type" not in scaling.values and "type" in scaling.values else "rope_type"
    match scaling.word(key, "default"):
        case "default":
            return RopeConfig(theta)
        case "linear":
            return RopeConfig(theta, "linear", scaling.number("factor"))
        case "llama3":
            return RopeConfig(
                theta,
                "llama3",
                scaling.number("factor"),
                scaling.number("low_freq_factor"),
                scaling.number("high_freq_factor"),
                scaling.count("original_max_position_embeddings"),
            )
    raise scaling.refuse(key, "default, linear, llama3")


def _rope_keys(keys: Keys) -> Keys:
    is_new = bool(keys.values.get("rope_parameters"))
    return keys.section("rope_parameters" if is_new else "rope_scaling")


def _token_ids(keys: Keys, key: str) -> tuple[int, ...]:
    allowed = "a token id >= 0, a list of these, or null"
    value = keys.get(key, [], (int, list), allowed)
    ids = value if isinstance(value, list) else [value]
    if not all(type(i) is int and i >= 0 for i in ids):
        raise keys.refuse(key, allowed)
    return tuple(ids)


def _token_id(keys: Keys, key: str) -> int | None:
    ids = _token_ids(keys, key)
    return ids[0] if ids else None


def _check(keys: Keys, config: ModelConfig) -> None:
    """Raise InvalidModel for sizes that do not fit together, or parts that nobody wrote yet."""
    if config.num_heads % config.num_kv_heads:
        raise keys.refuse("num_key_value_heads", f"a divisor of {config.num_heads}")
    if config.head_dim % 2:
        raise keys.refuse("head_dim", "an even number")
    if keys.word("hidden_act", "silu") not in ("silu", "swish"):
        raise keys.refuse("hidden_act", "silu")
    rope = config.rope
    if rope.kind == "llama3" and rope.high_freq_factor <= rope.low_freq_factor:
        allowed = f"above low_freq_factor={rope.low_freq_factor}"
        raise _rope_keys(keys).refuse("high_freq_factor", allowed)
    special = (*config.eos_ids, *(() if config.bos_id is None else (config.bos_id,)))
    if any(i >= config.vocabulary_size for i in special):
        raise keys.refuse("eos_token_id", f"ids below vocab_size={config.vocabulary_size}")


def _product(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
