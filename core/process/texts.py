"""The tokenizer of an engine that runs in another process, read from the model's files here."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..api.config import EngineConfig
from ..media.limits import MediaLimits
from ..media.load import load
from ..model import vision
from ..text.tokenizer import Tokenizer


def tokenizer_of(folder: Path, config: EngineConfig, vocabulary_size: int) -> Tokenizer:
    """As the engine's own. vocabulary_size: that it reports."""
    found = Tokenizer.from_folder(folder, config.plain_content)
    found.widen(vocabulary_size)
    if (processor := vision.load(folder)) is not None:
        found.take_pictures(processor, partial(load, limits=MediaLimits.of(config)))
    return found
