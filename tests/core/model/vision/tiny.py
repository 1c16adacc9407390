"""Small random checkpoints of each family, written as transformers writes them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers.models import WordLevel

VOCABULARY = 120
IMAGE, VIDEO, START, END = 110, 111, 112, 113
EDGE = 28  # of a tile
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_TILES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": EDGE,
    "patch_size": 7,
    "projection_dim": 16,
    "initializer_range": 0.3,
}
CLIP, SIGLIP = (
    {**_TILES, "model_type": "clip_vision_model"},
    {**_TILES, "model_type": "siglip_vision_model"},
)
_PINPOINTS = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]
_MROPE = {"rope_type": "default", "mrope_section": [1, 2, 1], "rope_theta": 10000.0}
_QWEN: dict[str, Any] = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
    "text_config": {**TEXT, "rope_parameters": _MROPE},
}
_CROPPED = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": EDGE},
    "crop_size": {"height": EDGE, "width": EDGE},
    "do_resize": True,
    "do_center_crop": True,
}
_NEXT = {
    **_CROPPED,
    "image_processor_type": "LlavaNextImageProcessor",
    "image_grid_pinpoints": _PINPOINTS,
}
_CLIPS = {**_CROPPED, "video_processor_type": "LlavaNextVideoVideoProcessor"}
_SQUARE = {
    "image_processor_type": "LlavaOnevisionImageProcessor",
    "size": {"height": EDGE, "width": EDGE},
    "image_grid_pinpoints": _PINPOINTS,
}
_SQUARES = {
    "video_processor_type": "LlavaOnevisionVideoProcessor",
    "size": {"height": EDGE, "width": EDGE},
}


def _patches(patch: int, most: int) -> dict[str, Any]:
    size = {"shortest_edge": (2 * patch) ** 2, "longest_edge": most}
    common = {"patch_size": patch, "temporal_patch_size": 2, "merge_size": 2, "size": size}
    return {**common, "image_processor_type": "Qwen2VLImageProcessor"}


ARCHITECTURES = {
    "llava": "LlavaForConditionalGeneration",
    "llava_next": "LlavaNextForConditionalGeneration",
    "llava_next_video": "LlavaNextVideoForConditionalGeneration",
    "llava_onevision": "LlavaOnevisionForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}
_TEXTS = {"image_token_index": IMAGE, "video_token_index": VIDEO}
# Of each family: model type, configuration, and how pictures and clips are prepared.
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]] = {
    "llava": (
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": CLIP,
            "image_token_index": IMAGE,
        },
        _CROPPED,
        None,
    ),
    "llava_next": (
        {
            "text_config": {**TEXT, "model_type": "mistral"},
            "vision_config": CLIP,
            "image_token_index": IMAGE,
            "image_grid_pinpoints": _PINPOINTS,
        },
        _NEXT,
        None,
    ),
    "llava_next_video": (
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": CLIP,
            **_TEXTS,
            "image_grid_pinpoints": _PINPOINTS,
        },
        _NEXT,
        _CLIPS,
    ),
    "llava_onevision": (
        {
            "text_config": {**TEXT, "model_type": "qwen2"},
            "vision_config": SIGLIP,
            **_TEXTS,
            "image_grid_pinpoints": _PINPOINTS,
            "vision_aspect_ratio": "anyres_max_2",
        },
        _SQUARE,
        _SQUARES,
    ),
    "qwen2_vl": (
        {
            **_QWEN,
            "vision_config": {
                "depth": 2,
                "embed_dim": 16,
                "num_heads": 2,
                "mlp_ratio": 2,
                "hidden_size": 32,
                "patch_size": 4,
                "initializer_range": 0.3,
            },
        },
        _patches(4, 40 * 40),
        _patches(4, 32 * 32),
    ),
    "qwen2_5_vl": (
        {
            **_QWEN,
            "vision_config": {
                "depth": 2,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 4,
                "window_size": 16,
                "fullatt_block_indexes": [1],
                "tokens_per_second": 4,
                "initializer_range": 0.3,
            },
        },
        _patches(4, 40 * 40),
        _patches(4, 32 * 32),
    ),
    "qwen3_vl": (
        {
            **_QWEN,
            "text_config": {
                **TEXT,
                "head_dim": 8,
                "rope_parameters": {**_MROPE, "mrope_interleaved": True},
            },
            "vision_config": {
                "depth": 3,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 4,
                "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 1],
                "initializer_range": 0.3,
            },
        },
        _patches(4, 40 * 40),
        _patches(4, 8 * 32 * 32),
    ),
}


def save(kind: str, folder: Path, **changes: Any) -> Any:
    """Write a checkpoint of a family, and return the model of transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from transformers import AutoModelForImageTextToText
    torch.manual_seed(0)
    config = _config(kind, **changes)
    model = AutoModelForImageTextToText.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    save_settings(kind, folder)
    model.save_pretrained(folder)
    return model


def save_settings(kind: str, folder: Path, **changes: Any) -> None:
    """Write all but the weights. changes: of how pictures are prepared."""
    _, image, video = FAMILIES[kind]
    config = _config(kind)
    config.architectures = [ARCHITECTURES[kind]]
    config.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**image, **changes}))
    if video is not None:
        (folder / "video_preprocessor_config.json").write_text(json.dumps({**video, **changes}))
    words = {character: i for i, character in enumerate("0123456789.<> secondabfgh")}
    words |= {f"w{i}": i for i in range(25, VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(WordLevel(words, unk_token="w99"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))


def _config(kind: str, **changes: Any) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(kind, **{**FAMILIES[kind][0], **changes})
