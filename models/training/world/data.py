"""The literal data of the world and its tasks, which lies in files beside the modules."""

import tomllib
from pathlib import Path
from typing import Any


def table_of(module: str) -> dict[str, Any]:
    """The TOML file of a module's name, in its order. module: its `__file__`."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))


def blocks_of(module: str) -> list[str]:
    """The blocks of the text file of a module's name, which empty lines separate."""
    text = Path(module).with_suffix(".txt").read_text(encoding="utf-8")
    return text.strip().split("\n\n")
