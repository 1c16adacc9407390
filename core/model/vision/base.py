"""What the processors of all families share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...api.media import Kind
from ...api.protocol import InvalidModel
from ..config import read_architecture
from ..keys import Keys
from .prepare import settings_of

_RULES = 1  # how pixels and layouts are made; a change makes other keys


class Settings:
    """What a checkpoint says of pictures: config.json, its part on the tower, and how each kind is
    prepared."""

    def __init__(self, folder: Path, kinds: Sequence[Kind]) -> None:
        self.folder = folder
        self.config = Keys.read(folder / "config.json")
        self.name = read_architecture(self.config)
        self.vision = self.config.section("vision_config")
        found = {kind: settings_of(folder, kind) for kind in kinds}
        self.preparations = {kind: keys for kind, keys in found.items() if keys is not None}

    def preparation(self, kind: Kind) -> Keys:
        """How pictures of a kind are prepared."""
        return self.preparations[kind]

    def digest(self) -> bytes:
        """Of all that layouts and pixels follow from."""
        values = [_RULES, self.name, dict(self.config.values)]
        values += [dict(self.preparations[kind].values) for kind in sorted(self.preparations)]
        return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).digest()


class Processor:
    """A `MediaProcessor` without `layout` and `pixels`. placeholders: the token of each kind in
    chat templates."""

    def __init__(self, settings: Settings, placeholders: Mapping[Kind, int]) -> None:
        self.settings = settings.digest()
        self.kinds: frozenset[Kind] = frozenset(settings.preparations)
        self._placeholders = placeholders

    def placeholder(self, kind: Kind) -> int:
        """As `MediaProcessor.placeholder`."""
        return self._placeholders[kind]

    def wrapped(self, kind: Kind) -> Sequence[int]:
        """As `MediaProcessor.wrapped`."""
        return (self._placeholders[kind],)


def token_id(config: Keys, kind: Kind, default: int) -> int:
    """The placeholder of a kind, by its newer or older name."""
    newer, older = f"{kind}_token_id", f"{kind}_token_index"
    name = newer if newer in config.values else older
    value: Any = config.get(name, default, (int,), "a token id")
    return int(value)


def refuse(settings: Settings, what: str, expected: str) -> InvalidModel:
    """The error for settings that are not supported, for the caller to raise."""
    return InvalidModel(f"{settings.folder}: {settings.name} {what}; expected {expected}")
