"""The tokenizer of a cluster's model, where its files are on this machine, too."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...core.api.config import EngineConfig
from ...core.api.protocol import BackendInfo, ForkrootError
from ...core.model.hub.folders import cached_folder
from ...core.process.client import read_tokenizer


@dataclass(frozen=True, slots=True)
class TokenizerOf:
    """Reads the tokenizer of a model. Nothing is downloaded for it."""

    model: str
    engine: EngineConfig

    def __call__(self, info: BackendInfo) -> Any:
        """None where the files are not here."""
        with suppress(ForkrootError):
            return read_tokenizer(cached_folder(self.model), self.engine, info.vocabulary_size)
        return None
