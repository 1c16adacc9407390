"""Memory of well-known models, from their published shapes: the table of docs/models.md.

Nothing is loaded; the sizes are those that `forkroot check` computes. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forkroot.core.model.checkpoint.memory import Load, weight_bytes, working_bytes
from forkroot.core.model.config import ModelConfig

TOKENS = 8192  # of KV, for all that runs and is cached
LOAD = Load(chunk_tokens=1024, max_running=64)
HEAD = ("model", "parameters", "download", "KV of 1,000", "CPU bfloat16", "CPU float32", "GPU")

# architecture; vocabulary, hidden, layers, heads, KV heads, width of a head, feed-forward; tied
_SHAPES: Mapping[str, tuple[str, tuple[int, ...], bool]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": ("Qwen2", (151_936, 896, 24, 14, 2, 64, 4864), True),
    "meta-llama/Llama-3.2-1B-Instruct": ("Llama", (128_256, 2048, 16, 32, 8, 64, 8192), True),
    "Qwen/Qwen2.5-1.5B-Instruct": ("Qwen2", (151_936, 1536, 28, 12, 2, 128, 8960), True),
    "meta-llama/Llama-3.2-3B-Instruct": ("Llama", (128_256, 3072, 28, 24, 8, 128, 8192), True),
    "Qwen/Qwen3-4B": ("Qwen3", (151_936, 2560, 36, 32, 8, 128, 9728), True),
    "mistralai/Mistral-7B-Instruct-v0.3": (
        *("Mistral", (32_768, 4096, 32, 32, 8, 128, 14_336)),
        False,
    ),
    "Qwen/Qwen2.5-7B-Instruct": ("Qwen2", (152_064, 3584, 28, 28, 4, 128, 18_944), False),
    "meta-llama/Llama-3.1-8B-Instruct": ("Llama", (128_256, 4096, 32, 32, 8, 128, 14_336), False),
    "Qwen/Qwen2.5-14B-Instruct": ("Qwen2", (152_064, 5120, 48, 40, 8, 128, 13_824), False),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": (
        *("Mixtral", (32_000, 4096, 32, 32, 8, 128, 14_336)),
        False,
    ),
}
_KEYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "intermediate_size"),
)


def configs() -> Iterator[tuple[str, ModelConfig]]:
    """Each model's name, and its shape as its config.json is read."""
    for name, (architecture, sizes, is_tied) in _SHAPES.items():
        keys: dict[str, Any] = {
            "architectures": [f"{architecture}ForCausalLM"],
            **dict(zip(_KEYS, sizes, strict=True)),
            "max_position_embeddings": 32_768,
            "tie_word_embeddings": is_tied,
            "dtype": "bfloat16",
            "sliding_window": None,
        }
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(keys))
            yield name, ModelConfig.from_folder(folder)


def row(name: str, model: ModelConfig) -> tuple[str, ...]:
    """One line of the table: weights and the KV of `TOKENS`; on a GPU what steps need, too."""
    half, single = (TOKENS * model.kv_bytes_per_token(it) for it in ("bfloat16", "float32"))
    working = working_bytes(model, "bfloat16", LOAD)
    needs = (
        weight_bytes(model, "bfloat16") + half,
        weight_bytes(model, "float32") + single,
        weight_bytes(model, "bfloat16", "cuda") + half + working,
    )
    count, kv = model.num_parameters(), 1000 * model.kv_bytes_per_token("bfloat16")
    columns = f"{count / 1e9:.2f} G", _gib(2 * count), f"{kv / 2**20:,.0f} MiB"
    return f"`{name}`", *columns, *map(_gib, needs)


def table() -> str:
    """The whole table."""
    rows = [HEAD, ("---",) + ("--:",) * (len(HEAD) - 1), *(row(*it) for it in configs())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(table())
