"""The configuration of a checkpoint of our own architectures: sizes, encodings, special tokens.

Reads `config.json` and `generation_config.json` as transformers writes them, with the keys of
version 5 or the older ones. Knows no torch, so that a checkpoint can be judged without loading it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..api.media import Kind
from .architectures import ARCHITECTURES, Windows, num_layers
from .keys import REQUIRED, Keys
from .rope import RopeConfig as RopeConfig
from .rope import read_rope
from .sizes import DTYPE_BYTES as DTYPE_BYTES
from .sizes import Sizes

Shape: TypeAlias = tuple[int, ...]

ASSUMED_LEN = 2048  # as Llama's configuration in transformers has it


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(Sizes):
    """The sizes of one decoder model of `ARCHITECTURES`.

    windows: of each layer, how many tokens up to itself a token sees; None: all.
    has_head_norms: whether each head of queries and keys is normalised (Qwen 3).
    num_experts: in place of one feed-forward (Mixtral); 0: there is one. experts_per_token: how
      many of them compute a token.
    tower: the class of transformers whose tower makes features of pictures. kinds: what it takes.
      tower_parameters: numbers beside those of the decoder.
    """

    hidden_size: int
    ffn_size: int
    num_heads: int
    norm_eps: float
    rope: RopeConfig
    is_tied: bool
    windows: Windows
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    has_head_norms: bool = False
    num_experts: int = 0
    experts_per_token: int = 0
    tower: str = ""
    kinds: tuple[Kind, ...] = ()
    tower_parameters: int = 0

    @classmethod
    def from_folder(cls, folder: str | Path) -> ModelConfig:
        """Read a checkpoint's configuration. Raises InvalidModel naming file, key and value."""
        keys = Keys.read(Path(folder) / "config.json")
        return cls.from_keys(keys, read_architecture(keys))

    @classmethod
    def from_keys(cls, keys: Keys, name: str) -> ModelConfig:
        """Of a decoder of this name. Raises InvalidModel naming file, key and value."""
        if name not in ARCHITECTURES:
            raise keys.refuse("architectures", f"one of {', '.join(ARCHITECTURES)}")
        architecture = ARCHITECTURES[name]
        hidden_size, num_heads = keys.count("hidden_size"), keys.count("num_attention_heads")
        head_dim = keys.count("head_dim", hidden_size // num_heads)
        context_len = keys.count("max_position_embeddings", ASSUMED_LEN)
        bos_id, eos_ids = read_special_tokens(keys)
        config = cls(
            architecture=name,
            vocabulary_size=keys.count("vocab_size"),
            num_layers=num_layers(keys),
            hidden_size=hidden_size,
            ffn_size=keys.count("intermediate_size"),
            num_heads=num_heads,
            num_kv_heads=keys.count("num_key_value_heads", num_heads),
            head_dim=head_dim,
            context_len=context_len,
            norm_eps=keys.number("rms_norm_eps", 1e-6),
            rope=read_rope(keys, architecture.theta, context_len, head_dim),
            is_tied=keys.flag("tie_word_embeddings", False),
            dtype=read_dtype(keys),
            bos_id=bos_id,
            eos_ids=eos_ids,
            windows=architecture.windows(keys),
            is_length_assumed=keys.values.get("max_position_embeddings") is None,
            **architecture.fields(keys),
        )
        _check(keys, config)
        return config

    @property
    def path(self) -> str:
        """As `Sizes.path`."""
        own = "forkroot's own model code"
        takes = " and ".join(f"{kind}s" for kind in self.kinds)
        return f"{own}, with {takes} by the tower of {self.tower}" if takes else own

    def weight_shapes(self) -> dict[str, Shape]:
        """Name and shape of every tensor that the checkpoint must hold."""
        shapes: dict[str, Shape] = {
            "model.embed_tokens.weight": (self.vocabulary_size, self.hidden_size),
            "model.norm.weight": (self.hidden_size,),
        }
        if not self.is_tied:
            shapes["lm_head.weight"] = (self.vocabulary_size, self.hidden_size)
        of_a_layer = self._attention_shapes() | self._ffn_shapes()
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            shapes.update({prefix + name: shape for name, shape in of_a_layer.items()})
        return shapes

    def _attention_shapes(self) -> dict[str, Shape]:
        q_dim, kv_dim = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, Shape] = {
            "input_layernorm.weight": (self.hidden_size,),
            "post_attention_layernorm.weight": (self.hidden_size,),
            **_linear("self_attn.q_proj", q_dim, self.hidden_size, self.has_qkv_bias),
            **_linear("self_attn.k_proj", kv_dim, self.hidden_size, self.has_qkv_bias),
            **_linear("self_attn.v_proj", kv_dim, self.hidden_size, self.has_qkv_bias),
            **_linear("self_attn.o_proj", self.hidden_size, q_dim, self.has_output_bias),
        }
        if self.has_head_norms:
            shapes |= {f"self_attn.{name}_norm.weight": (self.head_dim,) for name in "qk"}
        return shapes

    def _ffn_shapes(self) -> dict[str, Shape]:
        into, back = (self.ffn_size, self.hidden_size), (self.hidden_size, self.ffn_size)
        if not self.num_experts:
            return {
                **_linear("mlp.gate_proj", *into, self.has_mlp_bias),
                **_linear("mlp.up_proj", *into, self.has_mlp_bias),
                **_linear("mlp.down_proj", *back, self.has_mlp_bias),
            }
        shapes = _linear("block_sparse_moe.gate", self.num_experts, self.hidden_size)
        for expert in range(self.num_experts):
            name = f"block_sparse_moe.experts.{expert}"
            shapes |= _linear(f"{name}.w1", *into) | _linear(f"{name}.w3", *into)
            shapes |= _linear(f"{name}.w2", *back)
        return shapes

    @property
    def group(self) -> int:
        """As `Sizes.group`."""
        return self.num_heads // self.num_kv_heads

    def num_parameters(self) -> int:
        """As `Sizes.num_parameters`."""
        return sum(map(math.prod, self.weight_shapes().values())) + self.tower_parameters


def read_architecture(keys: Keys) -> str:
    """The name of the model's class. Raises InvalidModel."""
    allowed = "a list of one name, such as LlamaForCausalLM"
    names = keys.get("architectures", REQUIRED, (list,), allowed)
    if len(names) != 1 or not isinstance(names[0], str):
        raise keys.refuse("architectures", allowed)
    return names[0]


def read_dtype(keys: Keys) -> str:
    """Of the stored weights. Raises InvalidModel."""
    key = "dtype" if "dtype" in keys.values else "torch_dtype"
    name = keys.word(key, "float32")
    if name not in DTYPE_BYTES:
        raise keys.refuse(key, ", ".join(DTYPE_BYTES))
    return name


def read_special_tokens(keys: Keys) -> tuple[int | None, tuple[int, ...]]:
    """The token that begins a text, and those that end an answer: of the generation config, if it
    names any, else of the config. Raises InvalidModel."""
    path = keys.path.with_name("generation_config.json")
    generation = Keys.read(path) if path.exists() else Keys(path, {})
    starts = _token_ids(keys, "bos_token_id")
    ends = _token_ids(generation, "eos_token_id") or _token_ids(keys, "eos_token_id")
    return starts[0] if starts else None, ends


def _token_ids(keys: Keys, key: str) -> tuple[int, ...]:
    allowed = "a token id >= 0, a list of these, or null"
    value = keys.get(key, [], (int, list), allowed)
    ids = value if isinstance(value, list) else [value]
    if not all(type(i) is int and i >= 0 for i in ids):
        raise keys.refuse(key, allowed)
    return tuple(ids)


def _linear(name: str, out_dim: int, in_dim: int, has_bias: bool = False) -> dict[str, Shape]:
    weight: dict[str, Shape] = {f"{name}.weight": (out_dim, in_dim)}
    return {**weight, f"{name}.bias": (out_dim,)} if has_bias else weight


def _check(keys: Keys, config: ModelConfig) -> None:
    """Raise InvalidModel for sizes that do not fit together, or parts that nobody wrote yet."""
    if config.num_heads % config.num_kv_heads:
        raise keys.refuse("num_key_value_heads", f"a divisor of {config.num_heads}")
    if config.head_dim % 2:
        raise keys.refuse("head_dim", "an even number")
    if keys.word("hidden_act", "silu") not in ("silu", "swish"):
        raise keys.refuse("hidden_act", "silu")
    check_special_tokens(keys, config)


def check_special_tokens(keys: Keys, sizes: Sizes) -> None:
    """Raise InvalidModel for a special token that is not in the vocabulary."""
    special = (*sizes.eos_ids, *(() if sizes.bos_id is None else (sizes.bos_id,)))
    if any(i >= sizes.vocabulary_size for i in special):
        raise keys.refuse("eos_token_id", f"ids below vocab_size={sizes.vocabulary_size}")
