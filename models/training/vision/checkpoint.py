"""The files of the eyes. With the text model's they make a LLaVA checkpoint, which
`core/model/hub/embedded.py` puts together."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ..tokenizer import CHAT_TEMPLATE, IMAGE
from .network import TOWER
from .rows import IMAGE_ID, NUM_PATCHES, PATCH, SIZE

IMAGE_PROCESSOR = {
    "image_processor_type": "CLIPImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "size": {"shortest_edge": SIZE},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": SIZE, "width": SIZE},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
PROCESSOR = {
    "processor_class": "LlavaProcessor",
    "image_token": IMAGE,
    "patch_size": PATCH,
    "num_additional_image_tokens": 1,
    "vision_feature_select_strategy": "default",
}


def config_of(text: Mapping[str, Any]) -> dict[str, Any]:
    """The LLaVA config for a text model of this config."""
    of_both = ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings")
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": dict(text),
        "vision_config": TOWER,
        "image_token_index": IMAGE_ID,
        "image_seq_length": NUM_PATCHES,
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": True,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        **{key: text[key] for key in of_both},
    }


def save_eyes(
    tensors: Mapping[str, Tensor], text: Path, folder: Path, facts: Mapping[str, Any]
) -> None:
    """Write the trained tensors and all config files to `folder`. text: the text model's
    folder; facts: what training.json tells about the run."""
    folder.mkdir(exist_ok=True)
    written = {
        "config.json": config_of(json.loads((text / "config.json").read_text())),
        "preprocessor_config.json": IMAGE_PROCESSOR,
        "processor_config.json": PROCESSOR,
        "training.json": facts,
    }
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + "\n")
    shutil.copyfile(text / "generation_config.json", folder / "generation_config.json")
    (folder / "vision.safetensors").write_bytes(save(dict(tensors), metadata={"format": "pt"}))
