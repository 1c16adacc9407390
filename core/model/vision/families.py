"""The model families that take pictures, by the names of their classes in transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ...api.media import Kind, MediaProcessor
from ..config import read_architecture
from ..keys import Keys
from .base import Settings
from .llava import Llava, LlavaNext, LlavaOnevision
from .qwen import Qwen2VL, Qwen3VL, Qwen25VL

# Their pictures' tokens see those after them, which paged KV cannot compute chunk by chunk.
LOOKING_AHEAD = ("Gemma3ForConditionalGeneration", "PaliGemmaForConditionalGeneration")


@dataclass(frozen=True, slots=True)
class Family:
    """name: of its class. kinds: what it can take. processor: makes its processor."""

    name: str
    kinds: tuple[Kind, ...]
    processor: Callable[[Settings], MediaProcessor]


_ALL = (
    Family("LlavaForConditionalGeneration", ("image",), Llava),
    Family("LlavaNextForConditionalGeneration", ("image",), LlavaNext),
    Family("LlavaNextVideoForConditionalGeneration", ("image", "video"), LlavaNext),
    Family("LlavaOnevisionForConditionalGeneration", ("image", "video"), LlavaOnevision),
    Family("Qwen2VLForConditionalGeneration", ("image", "video"), Qwen2VL),
    Family("Qwen2_5_VLForConditionalGeneration", ("image", "video"), Qwen25VL),
    Family("Qwen3VLForConditionalGeneration", ("image", "video"), Qwen3VL),
)
FAMILIES: Mapping[str, Family] = MappingProxyType({each.name: each for each in _ALL})


def processor_of(folder: str | Path) -> MediaProcessor | None:
    """The processor of a checkpoint; None for models that take text alone, and where the settings
    of its image processor are missing. Raises InvalidModel for settings that are not supported."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        return None  # a model without a folder
    family = FAMILIES.get(read_architecture(Keys.read(path)))
    if family is None:
        return None
    settings = Settings(Path(folder), family.kinds)
    return family.processor(settings) if settings.preparations else None
