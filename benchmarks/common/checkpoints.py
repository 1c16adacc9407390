"""Makes the checkpoints that engines are compared on: random weights, in Hugging Face form.

The tokenizer is a byte-level BPE over the standard library's sources. The head is made so that a
greedy answer consists of whole words and never ends early, and so that a constrained one prefers
long tokens, as a trained model does. So every engine writes answers of the length that it was asked
for, and their text gives their tokens again. Weights may be stored in bfloat16, as published ones
are: engines can be set to run them in float32.
"""

from __future__ import annotations

import argparse
import json
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Trained

from forkroot.core.model.config import ModelConfig
from forkroot.core.text.tokenizer import Tokenizer

END, PAD = "<|end|>", "<|pad|>"
CONSTANT, LONGEST = 0.1, 12
_WORD = re.compile(b" [a-z]+")
_SIZES: dict[str, dict[str, int]] = {
    "56m": {
        "num_hidden_layers": 8,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 1408,
        "vocab_size": 32_000,
    },
    "layer": {
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "intermediate_size": 128,
        "vocab_size": 1024,
    },
}
MODELS = tuple(_SIZES)
STORED = ("float32", "bfloat16")


def make(name: str, folder: Path, seed: int = 0, stored: str = STORED[0]) -> Path:
    """Write the checkpoint `name` of MODELS into `folder`, unless it is there. stored: the dtype of
    its weights, of STORED."""
    if not (folder / "model.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _trained(_SIZES[name]["vocab_size"]).save(str(folder / "tokenizer.json"))
        _write(folder, "config.json", _config(name, stored))
        _write(folder, "tokenizer_config.json", _TOKENIZER)
        _write(folder, "generation_config.json", _SPECIAL | {"do_sample": False})
        weights = _weights(folder, seed).items()
        dtype = getattr(torch, stored)
        tensors = {name: torch.from_numpy(values).to(dtype) for name, values in weights}
        save_file(tensors, folder / "model.safetensors", _FORMAT)
    return folder


def words(tokenizer: Tokenizer) -> list[int]:
    """The tokens that are a blank and a word, and stay so in any text of such tokens."""
    spelled = enumerate(tokenizer.token_bytes)
    found = [(token, text.decode()) for token, text in spelled if _WORD.fullmatch(text)]
    return [token for token, text in found if tokenizer.encode(text) == [token]]


def _trained(size: int) -> Trained:
    tokenizer = Trained(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=[AddedToken(END, special=True), AddedToken(PAD, special=True)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_sources(), trainer)
    return tokenizer


def _sources() -> Iterator[str]:
    """Texts that are at hand wherever Python is, in a fixed order."""
    folder = Path(sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" not in path.parts:
            yield path.read_text(encoding="utf-8", errors="ignore")


def _weights(folder: Path, seed: int) -> dict[str, Any]:
    """Random matrices. The first of the hidden numbers is the same everywhere and always: no layer
    reads or writes it, and the head multiplies it by how much a token is liked."""
    rng = np.random.default_rng(seed)
    weights = {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
        for name, shape in ModelConfig.from_folder(folder).weight_shapes().items()
    }
    for name, values in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight", "layernorm.weight")):
            values[0] = 0.0
    weights["model.embed_tokens.weight"][:, 0] = CONSTANT
    _prefer(weights["lm_head.weight"], Tokenizer.from_folder(folder))
    return weights


def _prefer(head: Any, tokenizer: Tokenizer) -> None:
    """Words before all, of other tokens the longer, and never one that stops."""
    liked = [min(len(text), LONGEST) / 10 for text in tokenizer.token_bytes]
    scale = np.full(len(head), 0.02, np.float32)
    known = words(tokenizer)
    scale[known], scale[:2] = 1.0, 0.0
    head *= scale[:, None]
    head[:, 0] = liked
    head[known, 0], head[:2, 0] = LONGEST / 10, -1.0


def _config(name: str, stored: str) -> dict[str, Any]:
    """Keys of both transformers 5 and older ones."""
    sizes = _SIZES[name]
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **sizes,
        **_SPECIAL,
        "head_dim": sizes["hidden_size"] // sizes["num_attention_heads"],
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "rope_parameters": rope,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": stored,
        "torch_dtype": stored,
    }


_FORMAT = {"format": "pt"}
_SPECIAL: dict[str, Any] = {"eos_token_id": 0, "pad_token_id": 1, "bos_token_id": None}
_TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": END,
    "pad_token": PAD,
    "model_max_length": 4096,
    "clean_up_tokenization_spaces": False,
}


def _write(folder: Path, name: str, value: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    """Make a checkpoint."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("name", choices=MODELS)
    options.add_argument("folder", type=Path)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--stored", choices=STORED, default=STORED[0])
    args = options.parse_args()
    print(make(args.name, args.folder, args.seed, args.stored))


if __name__ == "__main__":
    main()
