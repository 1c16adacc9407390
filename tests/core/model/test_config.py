"""What a configuration may say, and the errors for what it may not. No torch is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.config import ModelConfig, RopeConfig

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

QWEN_WINDOW = {
    "architectures": ["Qwen2ForCausalLM"],
    "use_sliding_window": True,
    "sliding_window": 64,
    "max_window_layers": 1,
}


def read(folder: Path, generation: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return ModelConfig.from_folder(folder)


def test_what_is_not_set_follows_from_the_rest(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert (config.num_kv_heads, config.head_dim, config.dtype) == (4, 16, "float32")
    assert (config.rope, config.is_tied) == (RopeConfig(10_000.0), False)
    assert (config.bos_id, config.eos_ids) == (None, ())


def test_end_tokens_come_from_the_generation_config_first(tmp_path: Path) -> None:
    assert read(tmp_path, eos_token_id=7, bos_token_id=1).eos_ids == (7,)
    assert read(tmp_path, {"eos_token_id": [3, 9]}, eos_token_id=7).eos_ids == (3, 9)
    assert read(tmp_path, {"eos_token_id": None}, eos_token_id=7).eos_ids == (7,)


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_scaled_rope_is_read(tmp_path: Path, key: str) -> None:
    rope = read(tmp_path, rope_theta=5e5, **{key: LLAMA3}).rope
    assert rope == RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 64)
    linear = read(tmp_path, rope_theta=5e5, **{key: {"type": "linear", "factor": 2}}).rope
    assert linear == RopeConfig(5e5, "linear", 2.0)


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"sliding_window": 64}, (None, None)),
        ({"architectures": ["MistralForCausalLM"]}, (4096, 4096)),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, (None, None)),
        ({"architectures": ["MixtralForCausalLM"]}, (None, None)),
        ({"architectures": ["MixtralForCausalLM"], "sliding_window": 9}, (9, 9)),
        (QWEN_WINDOW, (None, 64)),
        ({**QWEN_WINDOW, "use_sliding_window": False}, (None, None)),
        ({**QWEN_WINDOW, "layer_types": ["sliding_attention", "full_attention"]}, (64, None)),
    ],
)
def test_windows_are_those_that_the_architecture_means(
    tmp_path: Path, changes: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert read(tmp_path, **changes).windows == windows


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"architectures": ["GPT2LMHeadModel"]}, "architectures is .*GPT2"),
    "two architectures": ({"architectures": ["LlamaForCausalLM"] * 2}, "architectures is"),
    "no size": ({"hidden_size": None}, r"hidden_size is None; expected an integer >= 1"),
    "size zero": ({"vocab_size": 0}, "vocab_size is 0; expected an integer >= 1"),
    "a size that is true": ({"num_hidden_layers": True}, "num_hidden_layers is True"),
    "a text for a number": ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
    "uneven groups": ({"num_key_value_heads": 3}, "num_key_value_heads is 3; .* divisor of 4"),
    "odd head": ({"head_dim": 7}, "head_dim is 7; expected an even"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; expected silu"),
    "unknown rope": (
        {"rope_scaling": {"rope_type": "spiral"}},
        "rope_type is 'spiral'; expected default, linear, dynamic, yarn, longrope, llama3",
    ),
    "half of a head turned": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor is 0.5; expected 1",
    ),
    "longrope of another size": (
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        r"short_factor is \[1.0\]; expected a list of 8 finite numbers > 0",
    ),
    "a window of size zero": (
        {"architectures": ["MistralForCausalLM"], "sliding_window": 0},
        "sliding_window is 0; expected an integer >= 1",
    ),
    "layers of an unknown kind": (
        {**QWEN_WINDOW, "layer_types": ["full_attention", "chunked_attention"]},
        "layer_types is .*chunked_attention.*; expected 2 of full_attention, sliding_attention",
    ),
    "more experts than there are": (
        {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 5},
        "num_experts_per_tok is 5; expected at most num_local_experts=4",
    ),
    "linear without factor": ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
    "llama3 without lengths": (
        {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": None}},
        "original_max_position_embeddings",
    ),
    "llama3 upside down": (
        {"rope_parameters": {**LLAMA3, "high_freq_factor": 0.5}},
        "high_freq_factor is 0.5; expected above low_freq_factor=1.0",
    ),
    "another dtype": ({"dtype": "int8"}, "dtype is 'int8'"),
    "older dtype key": ({"torch_dtype": "float64"}, "torch_dtype is 'float64'"),
    "end token outside": ({"eos_token_id": 100}, "eos_token_id is 100; .* below vocab_size=100"),
    "end token of words": ({"eos_token_id": ["a"]}, "eos_token_id is"),
    "a flag of words": ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_what_is_not_allowed_is_named_with_file_key_and_value(tmp_path: Path, name: str) -> None:
    changes, message = BAD[name]
    with pytest.raises(InvalidModel, match=r"config\.json: .*" + message):
        read(tmp_path, **changes)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff"])
def test_a_config_that_is_not_a_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(InvalidModel, match=r"config\.json"):
        ModelConfig.from_folder(tmp_path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"config\.json is missing"):
        ModelConfig.from_folder(tmp_path)
