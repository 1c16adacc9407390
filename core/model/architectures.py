"""The decoders that run by our own code: one entry each, by the name in `config.json`.

A new decoder is a module in `core.model.arch` and an entry here. Loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from .keys import Keys

Windows: TypeAlias = tuple[int | None, ...]
Fields: TypeAlias = dict[str, Any]

MOST_LAYERS, MOST_EXPERTS = 1024, 512
_WINDOW = 4096  # of Mistral and Qwen, where a configuration has none


def num_layers(keys: Keys) -> int:
    """Layers of a decoder."""
    return keys.count("num_hidden_layers", most=MOST_LAYERS)


def _all_tokens(keys: Keys) -> Windows:
    return (None,) * num_layers(keys)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One decoder. name: the class of transformers. model: module and class in `core.model.arch`.
    fields: those of ModelConfig in which it differs from the plain decoder. windows: the sliding
    window of each layer; None: it sees all tokens. theta: the default base of its rotary encoding.
    The functions read its configuration, and raise InvalidModel."""

    name: str
    model: str = "llama:Llama"
    fields: Callable[[Keys], Fields] = lambda keys: {}
    windows: Callable[[Keys], Windows] = _all_tokens
    theta: float = 1e4


def _attention_biases(keys: Keys) -> Fields:
    return dict.fromkeys(("has_qkv_bias", "has_output_bias"), keys.flag("attention_bias", False))


def _llama(keys: Keys) -> Fields:
    return {**_attention_biases(keys), "has_mlp_bias": keys.flag("mlp_bias", False)}


def _qwen2(keys: Keys) -> Fields:
    return {"has_qkv_bias": True}


def _qwen3(keys: Keys) -> Fields:
    return {**_attention_biases(keys), "has_head_norms": True}


def _mixtral(keys: Keys) -> Fields:
    num_experts = keys.count("num_local_experts", 8, MOST_EXPERTS)
    experts_per_token = keys.count("num_experts_per_tok", 2)
    if experts_per_token > num_experts:
        raise keys.refuse("num_experts_per_tok", f"at most num_local_experts={num_experts}")
    return {"num_experts": num_experts, "experts_per_token": experts_per_token}


def _same_window(default: int | None) -> Callable[[Keys], Windows]:
    """One window for all layers, with this default."""

    def windows(keys: Keys) -> Windows:
        if keys.values.get("sliding_window", default) is None:
            return _all_tokens(keys)
        return (keys.count("sliding_window", default),) * num_layers(keys)

    return windows


def _layer_types(keys: Keys) -> Windows:
    """A window for the layers that the configuration names, or for those after the first few."""
    if keys.values.get("sliding_window", _WINDOW) is None:
        return _all_tokens(keys)
    window = keys.count("sliding_window", _WINDOW)
    if not keys.flag("use_sliding_window", False):
        return _all_tokens(keys)
    count = num_layers(keys)
    first = keys.get("max_window_layers", 28, (int,), "an integer >= 0")
    kinds = ["full_attention"] * count
    kinds[first:] = ["sliding_attention"] * len(kinds[first:])
    kinds = keys.get("layer_types", kinds, (list,), f"a list of {count} names")
    known = {"full_attention": None, "sliding_attention": window}
    if len(kinds) != count or any(kind not in tuple(known) for kind in kinds):
        raise keys.refuse("layer_types", f"{count} of {', '.join(known)}")
    return tuple(known[kind] for kind in kinds)


_ALL = (
    Architecture("LlamaForCausalLM", fields=_llama),
    Architecture("MistralForCausalLM", windows=_same_window(_WINDOW)),
    Architecture("MixtralForCausalLM", "mixtral:Mixtral", _mixtral, _same_window(None), theta=1e6),
    Architecture("Qwen2ForCausalLM", fields=_qwen2, windows=_layer_types),
    Architecture("Qwen3ForCausalLM", fields=_qwen3, windows=_layer_types),
)
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({each.name: each for each in _ALL})
