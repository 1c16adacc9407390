"""Write docs/settings.md, the reference of the engine's settings, from `EngineConfig`:
`python docs/settings.py`. A test compares the page with what this script would write."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

from forkroot.core.api.config import EngineConfig

PAGE = Path(__file__).with_suffix(".md")
HEAD = """# Settings

Settings of the engine. Pass them to `connect("MODEL", num_slots=100_000)`, to an adapter
(`LM("MODEL", settings={"num_slots": 100_000})`; `ChatForkroot` and Guidance's `Forkroot` take the
same), or on the command line (`--set num_slots=100000`). An unknown name or a value that is not
listed ends in `InvalidCall`. This page is generated from `core/api/config.py` by
`python docs/settings.py`.

| setting | default | values | meaning |
|---|---|---|---|
"""


def descriptions() -> dict[str, str]:
    """Setting -> what the docstring of `EngineConfig` says about it, in one line."""
    text = inspect.cleandoc(EngineConfig.__doc__ or "")
    found = re.findall(r"^(\w+): (.*(?:\n  .*)*)", text, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning) for name, meaning in found}


def page() -> str:
    """The whole page."""
    meanings, allowed = descriptions(), EngineConfig.allowed_values()
    rows = [
        f"| `{it.name}` | `{it.default!r}` | {allowed[it.name]} | {meanings[it.name]} |"
        for it in fields(EngineConfig)
    ]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
