"""Decoders of our own code beside a tower of transformers: their configuration and weights within
those of the whole model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...api.protocol import InvalidModel
from ..config import ModelConfig
from ..keys import Keys
from ..transformers.library import read_config, text_config_of
from ..transformers.model import HubConfig

# Classes of decoders by their `model_type`.
_DECODERS = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
}
# Prefixes of a decoder's weights in a whole model, newer and older ones.
_PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "lm_head.": "lm_head.",
    **{name: name for name in ("model.embed_tokens.", "model.layers.", "model.norm.")},
}


def with_own_text(folder: str | Path, sizes: HubConfig) -> HubConfig | ModelConfig:
    """The same model with its text by our own code, where that can run it."""
    if not sizes.kinds:
        return sizes
    keys = Keys.read(Path(folder) / "config.json")
    values = text_config_of(read_config(keys))
    name = _DECODERS.get(values.get("model_type", ""))
    if name is None:
        return sizes
    try:
        own = ModelConfig.from_keys(Keys(keys.path, values), name)
    except InvalidModel:
        return sizes  # an option that our code does not have
    return replace(
        own,
        tower=sizes.architecture,
        kinds=sizes.kinds,
        tower_parameters=sizes.num_parameters() - own.num_parameters(),
        feature_size=sizes.feature_size,
        tower_numbers=sizes.tower_numbers,
        dtype=sizes.dtype,
        bos_id=sizes.bos_id,
        eos_ids=sizes.eos_ids,
    )


def text_name(stored: str) -> str | None:
    """The name that a tensor has in a decoder by itself; None where it is of a tower."""
    for prefix, own in _PREFIXES.items():
        if stored.startswith(prefix):
            return own + stored.removeprefix(prefix)
    return None
