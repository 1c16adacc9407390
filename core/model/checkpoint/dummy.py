"""Models of published shapes with weights that mean nothing, made on the device: for benchmarks.

Their text is noise and never ends by itself.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ...api.protocol import InvalidModel
from ..config import ModelConfig
from ..rope import RopeConfig

_PERIOD = 1_048_583  # a prime, so that no two rows of a matrix are alike


class DummyWeights:
    """Stands in for a checkpoint: numbers that seem random, a function of their tensor's name.

    Cheap to make: one short series of normal numbers is repeated through every matrix, from
    another place in each, and scaled so that activations stay near 1.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._shapes = config.weight_shapes()
        self._dtype = dtype
        random = torch.Generator(device).manual_seed(0)
        self._series = torch.randn(_PERIOD, generator=random, device=device)

    def take(self, name: str) -> Tensor:
        """As `Weights.take`."""
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=self._dtype, device=self._series.device)
        series = self._series.roll(zlib.crc32(name.encode()) % _PERIOD)
        series = (series / math.sqrt(shape[-1])).to(self._dtype)
        tensor = torch.empty(math.prod(shape), dtype=self._dtype, device=series.device)
        whole = tensor[: len(tensor) // _PERIOD * _PERIOD]
        whole.view(-1, _PERIOD).copy_(series)
        tensor[len(whole) :] = series[: len(tensor) - len(whole)]
        return tensor.view(shape)

    def take_part(self, name: str, dim: int, part: slice) -> Tensor:
        """As `Weights.take_part`."""
        return self.take(name).narrow(dim, part.start, part.stop - part.start).clone()


def dummy_config(name: str) -> ModelConfig:
    """The shape of this name. Raises InvalidModel for a name that is not known."""
    if name not in SHAPES:
        raise InvalidModel(f"dummy model {name!r} is not known; expected {', '.join(SHAPES)}")
    return SHAPES[name]


def _shape(
    vocabulary_size: int,
    layers: int,
    hidden: int,
    ffn: int,
    heads: int,
    kv_heads: int,
    context_len: int,
) -> ModelConfig:
    """A plain Llama of these sizes."""
    return ModelConfig(
        architecture="LlamaForCausalLM",
        vocabulary_size=vocabulary_size,
        num_layers=layers,
        hidden_size=hidden,
        ffn_size=ffn,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
        context_len=context_len,
        norm_eps=1e-5,
        rope=RopeConfig(),
        is_tied=False,
        windows=(None,) * layers,
        dtype="bfloat16",
        bos_id=None,
        eos_ids=(),
    )


_LLAMA_3 = replace(
    _shape(128_256, 32, 4096, 14_336, 32, 8, 8192),
    rope=RopeConfig(theta=500_000.0),
)
_MISTRAL = replace(
    _shape(32_000, 32, 4096, 14_336, 32, 8, 32_768), architecture="MistralForCausalLM"
)
SHAPES: Mapping[str, ModelConfig] = {
    "56m": _shape(32_000, 8, 512, 1408, 8, 4, 4096),
    "llama-2-7b": _shape(32_000, 32, 4096, 11_008, 32, 32, 4096),
    "llama-2-13b": _shape(32_000, 40, 5120, 13_824, 40, 40, 4096),
    "llama-2-70b": _shape(32_000, 80, 8192, 28_672, 64, 8, 4096),
    "llama-3-8b": _LLAMA_3,
    "llama-3.1-8b": replace(
        _LLAMA_3,
        context_len=131_072,
        rope=RopeConfig(500_000.0, "llama3", 8.0, 1.0, 4.0, 8192),
    ),
    "mistral-7b": replace(_MISTRAL, windows=(4096,) * 32),
    "mixtral-8x7b": replace(
        _MISTRAL,
        architecture="MixtralForCausalLM",
        rope=RopeConfig(theta=1e6),
        num_experts=8,
        experts_per_token=2,
    ),
    "qwen2.5-7b": replace(
        _shape(152_064, 28, 3584, 18_944, 28, 4, 131_072),
        architecture="Qwen2ForCausalLM",
        norm_eps=1e-6,
        rope=RopeConfig(theta=1e6),
        has_qkv_bias=True,
    ),
    "qwen3-8b": replace(
        _shape(151_936, 36, 4096, 12_288, 32, 8, 40_960),
        architecture="Qwen3ForCausalLM",
        norm_eps=1e-6,
        rope=RopeConfig(theta=1e6),
        has_head_norms=True,
    ),
}
