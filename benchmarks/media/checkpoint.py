"""Makes checkpoints that see: LLaVA-1.5 for pictures, LLaVA-NeXT-Video for clips, with random
weights, in Hugging Face form. They are stored in bfloat16, as published ones are: engines can be
set to run them in float32.

The language model is the 56M one of `benchmarks.common.checkpoints`, and the tower has the sizes
of CLIP-L/14 at 336 pixels, with as many layers as are wanted; or, to try it out, the embedded model
and a tower of 28 pixels.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import load_file

from forkroot.benchmarks.common import checkpoints
from forkroot.core.model.hub.folders import model_folder

KINDS = {"image": "llava", "video": "llava_next_video"}
_EDGES = {"56m": (336, 14), "tiny": (28, 7)}  # of the tower's pictures, and of a patch
LANGUAGES = tuple(_EDGES)
_TOWERS: dict[str, dict[str, int]] = {
    "56m": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16},
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2},
}


def make(kind: str, language: str, layers: int, folder: Path, seed: int = 0) -> Path:
    """Write the checkpoint for "image" or "video" into `folder`, unless it is there. language: of
    LANGUAGES. layers: of the tower."""
    if (folder / "model.safetensors").exists():
        return folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from transformers import AutoConfig, AutoModelForImageTextToText
    is_tiny = language == "tiny"
    text = model_folder(language) if is_tiny else checkpoints.make(language, folder / "language")
    tokenizer = tokenizers.Tokenizer.from_file(str(text / "tokenizer.json"))
    names = {kind: f"<{kind}>" for kind in KINDS}
    tokenizer.add_special_tokens(list(names.values()))
    tokens = {kind: tokenizer.token_to_id(name) for kind, name in names.items()}
    config = AutoConfig.for_model(KINDS[kind], **_config(text, language, layers, tokens))
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(config).eval()
    _take_language(model, load_file(text / "model.safetensors"))
    model.generation_config.update(eos_token_id=0, pad_token_id=1, do_sample=False)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name in ("preprocessor_config", "video_preprocessor_config"):
        (folder / f"{name}.json").write_text(json.dumps(_prepared(kind, language, name)))
    return folder


def _config(text: Path, language: str, layers: int, tokens: dict[str, int]) -> dict[str, Any]:
    edge, patch = _EDGES[language]
    known = json.loads((text / "config.json").read_text())
    known["vocab_size"] = max(known["vocab_size"], *(token + 1 for token in tokens.values()))
    vision = {
        **_TOWERS[language],
        "model_type": "clip_vision_model",
        "num_hidden_layers": layers,
        "image_size": edge,
        "patch_size": patch,
        "projection_dim": _TOWERS[language]["hidden_size"],
    }
    return {
        "text_config": known,
        "vision_config": vision,
        "vision_feature_layer": -1,
        "tie_word_embeddings": known.get("tie_word_embeddings", False),
        "image_grid_pinpoints": [[edge, 2 * edge], [2 * edge, edge]],
        **{f"{kind}_token_index": token for kind, token in tokens.items()},
    }


def _take_language(model: Any, weights: dict[str, torch.Tensor]) -> None:
    """Copy the language model's weights. Rows of new tokens are zero, and those of a head such that
    they are not chosen."""
    own = dict(model.named_parameters())
    for name, values in weights.items():
        inner = name.removeprefix("model.")
        known = own[name if name == "lm_head.weight" else f"model.language_model.{inner}"]
        with torch.no_grad():
            known.zero_()[: len(values)] = values
            if name == "lm_head.weight":
                known[len(values) :, 0] = -1.0


def _prepared(kind: str, language: str, name: str) -> dict[str, Any]:
    """How pictures are resized and cropped."""
    edge, _ = _EDGES[language]
    still = "CLIPImageProcessor" if kind == "image" else "LlavaNextImageProcessor"
    is_clip = name.startswith("video")
    return {
        **({"video_processor_type": "LlavaNextVideoVideoProcessor"} if is_clip else {}),
        **({} if is_clip else {"image_processor_type": still}),
        "size": {"shortest_edge": edge},
        "crop_size": {"height": edge, "width": edge},
        "do_resize": True,
        "do_center_crop": True,
    }
