"""A JSON file of settings, read key by key; every error names file, key, value and what is allowed.

Knows nothing of what the keys mean.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..api.files import CONFIG_BYTES, read_object
from ..api.protocol import InvalidModel

MOST = 1 << 27  # of a size that allocates: no model comes near
REQUIRED = object()  # the default of a key that must be there


@dataclass(frozen=True, slots=True)
class Keys:
    """The values of one JSON object in the file `path`."""

    path: Path
    values: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Keys:
        """Raises InvalidModel for a file that is missing or no JSON object."""
        try:
            return cls(path, read_object(path, CONFIG_BYTES))
        except FileNotFoundError:
            message = f"{path} is missing; a checkpoint folder holds it{_instead(path.parent)}"
            raise InvalidModel(message) from None

    def refuse(self, key: str, allowed: str) -> InvalidModel:
        """The error for a key's value, for the caller to raise."""
        shown = _shown(self.values[key]) if key in self.values else "missing"
        return InvalidModel(f"{self.path}: {key} is {shown}; expected {allowed}")

    def get(self, key: str, default: object, kinds: tuple[type, ...], allowed: str) -> Any:
        """A value of one of these types; the default where it is missing or null."""
        value = self.values.get(key)
        if value is None:
            if default is REQUIRED:
                raise self.refuse(key, allowed)
            return default
        if isinstance(value, bool) is not (bool in kinds) or not isinstance(value, kinds):
            raise self.refuse(key, allowed)
        return value

    def count(self, key: str, default: object = REQUIRED, most: int = MOST) -> int:
        """An integer from 1 to `most`."""
        value: int = self.get(key, default, (int,), "an integer >= 1")
        if not 1 <= value <= most:
            raise self.refuse(key, "an integer >= 1" + (f", at most {most}" if value > 1 else ""))
        return value

    def number(self, key: str, default: object = REQUIRED) -> float:
        """A finite number > 0."""
        value = self.get(key, default, (int, float), "a finite number > 0")
        if not 0 < value <= sys.float_info.max:
            raise self.refuse(key, "a finite number > 0")
        return float(value)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of so many numbers > 0."""
        allowed = f"a list of {count} finite numbers > 0"
        values = self.get(key, REQUIRED, (list,), allowed)
        kinds = {type(value) for value in values}
        is_good = len(values) == count and kinds <= {int, float}
        if not is_good or not all(0 < value <= sys.float_info.max for value in values):
            raise self.refuse(key, allowed)
        return tuple(map(float, values))

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return bool(self.get(key, default, (bool,), "true or false"))

    def word(self, key: str, default: object = REQUIRED) -> str:
        """A text."""
        return str(self.get(key, default, (str,), "a string"))

    def section(self, key: str) -> Keys:
        """A nested object; empty where it is missing."""
        found = self.get(key, {}, (dict,), "a JSON object")
        return Keys(self.path, found)


def _shown(value: object) -> str:
    """A value for a message; of a long one the beginning."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of very many digits
        return f"a long {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}..."


def _instead(folder: Path) -> str:
    """What a folder that is not a checkpoint holds, if it is something known."""
    if (folder / "adapter_config.json").exists():
        return "; this is an adapter (LoRA): merge it into its model first, and save that"
    if (folder / "model_index.json").exists():
        return "; this is a pipeline of diffusers, which makes pictures"
    if any(folder.glob("*.gguf")):
        return "; this has weights as GGUF: take the checkpoint with safetensors instead"
    found = sorted(folder.glob("snapshots/*/config.json"))
    return f"; did you mean {str(found[-1].parent)!r}?" if found else ""
