"""Writes a checkpoint that `checkpoints` made as a GGUF file, which is what llama.cpp reads.

Run by the Python that `peers.py --setup` makes, which has gguf. Weights are written in float32: so
all engines compute in the same dtype. Llama's projections to queries and keys are permuted from two
halves to pairs, as that format has them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from forkroot.benchmarks.common.packages import needs

with needs("gguf"):
    from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map

SPLIT = "gpt-2"  # how a byte-level BPE of `checkpoints` cuts a text into words


def write(folder: Path, file: Path) -> None:
    """The checkpoint in `folder` as `file`."""
    config = json.loads((folder / "config.json").read_text())
    writer = GGUFWriter(file, "llama")
    _describe(writer, config)
    _add_tokenizer(writer, folder, config)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, weight in load_file(folder / "model.safetensors").items():
        values = weight.to(torch.float32)
        for projection, num_heads in heads.items():
            if projection in name:
                halves = values.reshape(num_heads, 2, -1, values.shape[1])
                values = halves.transpose(1, 2).reshape(values.shape)
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight",)), values.contiguous().numpy()
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    spelled = {token: text for text, token in tokenizer["model"]["vocab"].items()}
    spelled |= {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLIT)
    writer.add_token_list([spelled.get(token, f"[unused {token}]") for token in range(size)])
    writer.add_token_types([_kind(token, spelled, special) for token in range(size)])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)


def _kind(token: int, spelled: dict[int, str], special: set[int]) -> TokenType:
    if token in special:
        return TokenType.CONTROL
    return TokenType.NORMAL if token in spelled else TokenType.UNUSED


def main() -> None:
    """Write a file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("file", type=Path)
    args = options.parse_args()
    write(args.folder, args.file)


if __name__ == "__main__":
    main()
