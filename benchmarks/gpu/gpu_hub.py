"""Models of transformers with the very weights of our dummies, in memory or in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from forkroot.core.model.checkpoint.dummy import DummyWeights
from forkroot.core.model.config import ModelConfig

SHARD = 4 << 30  # bytes of a file


def hub_config(sizes: ModelConfig, context_len: int) -> Any:
    """A Llama of these sizes as transformers describes it."""
    from transformers import LlamaConfig

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": sizes.rope.theta}
    if sizes.rope.kind == "llama3":
        rope |= {
            "rope_type": "llama3",
            "factor": sizes.rope.factor,
            "low_freq_factor": sizes.rope.low_freq_factor,
            "high_freq_factor": sizes.rope.high_freq_factor,
            "original_max_position_embeddings": sizes.rope.original_len,
        }
    return LlamaConfig(
        vocab_size=sizes.vocabulary_size,
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.ffn_size,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        max_position_embeddings=context_len,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters=rope,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        architectures=["LlamaForCausalLM"],
    )


def hub_model(
    sizes: ModelConfig, context_len: int, dtype: torch.dtype, device: torch.device
) -> Any:
    """The model of transformers on a device, with a dummy's weights."""
    from transformers import AutoModelForCausalLM

    with torch.device(device):
        model = AutoModelForCausalLM.from_config(hub_config(sizes, context_len), dtype=dtype)
    weights = DummyWeights(sizes, dtype, device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.take(name))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


def write_folder(
    sizes: ModelConfig, context_len: int, dtype: torch.dtype, device: torch.device, folder: Path
) -> None:
    """The same as a checkpoint, in files of a few gigabytes."""
    from safetensors.torch import save_file

    weights = DummyWeights(sizes, dtype, device)
    config = hub_config(sizes, context_len)
    config.dtype = dtype
    config.save_pretrained(folder)
    where: dict[str, str] = {}
    part: dict[str, torch.Tensor] = {}
    names = list(sizes.weight_shapes())
    for name in names:
        part[name] = weights.take(name).cpu()
        if sum(it.nbytes for it in part.values()) > SHARD or name == names[-1]:
            file = f"model-{len(set(where.values()))}.safetensors"
            save_file(part, folder / file, {"format": "pt"})
            where |= dict.fromkeys(part, file)
            part = {}
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
