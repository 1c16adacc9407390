"""A checkpoint as Qwen publishes them, small: random weights, a byte-level BPE tokenizer made on
the spot, a chat template, a generation config."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "sliding_window": 1024,
    "max_window_layers": 2,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 2,
}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_qwen(folder: Path) -> Path:
    """Write the files of such a repository."""
    folder.mkdir(parents=True)
    size = _write_tokenizer(folder)
    config = {**CONFIG, "vocab_size": size}
    (folder / "config.json").write_text(json.dumps(config))
    ends = {"eos_token_id": [2, 0], "do_sample": True, "temperature": 0.7}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    random = torch.Generator().manual_seed(0)
    tensors = {
        name: (torch.randn(shape, generator=random) / shape[-1] ** 0.5).bfloat16()
        for name, shape in _shapes(size).items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    for name in ("README.md", "LICENSE", "merges.txt", "vocab.json"):
        (folder / name).write_text("not needed")
    return folder


def _write_tokenizer(folder: Path) -> int:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False
    )
    core.train_from_iterator(["What is the capital of France? Paris is."] * 4, trainer)
    core.save(str(folder / "tokenizer.json"))
    tokenizer_config = {
        "chat_template": TEMPLATE,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return int(core.get_vocab_size())


def _shapes(vocabulary_size: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary_size, 64),
        "model.norm.weight": (64,),
    }
    for layer in range(2):
        own = f"model.layers.{layer}"
        shapes |= {f"{own}.{name}_layernorm.weight": (64,) for name in ("input", "post_attention")}
        for name, width in (("q", 64), ("k", 32), ("v", 32)):
            shapes[f"{own}.self_attn.{name}_proj.weight"] = width, 64
            shapes[f"{own}.self_attn.{name}_proj.bias"] = (width,)
        shapes[f"{own}.self_attn.o_proj.weight"] = 64, 64
        shapes |= {f"{own}.mlp.{name}_proj.weight": (128, 64) for name in ("gate", "up")}
        shapes[f"{own}.mlp.down_proj.weight"] = 64, 128
    return shapes
