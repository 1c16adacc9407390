"""DSPy: a program runs on our runtime by changing its LM.

    import dspy
    from forkroot.adapters.dspy import LM

    dspy.configure(lm=LM("tiny"))

Entry: `LM`. Nothing of DSPy is imported before one of the names is used.
May import `core.api`, `core.common`, `adapters`, `adapters.hints` and `adapters.common`.
Never knows an engine, nor another framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...core.common.extras import how_to_install

if TYPE_CHECKING:
    from .engine import AsyncEngine, Engine
    from .judge import Judge
    from .lm import LM
    from .watcher import Watcher, plant

__all__ = ["LM", "AsyncEngine", "Engine", "Judge", "Watcher", "plant"]

_MODULE_OF = {
    "LM": "lm",
    "Engine": "engine",
    "AsyncEngine": "engine",
    "Judge": "judge",
    "Watcher": "watcher",
    "plant": "watcher",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_MODULE_OF[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("dspy", "pydantic"):
            raise
        text = f"{__name__}.{name} needs DSPy: {how_to_install('dspy')}"
        raise ImportError(text) from error
    return getattr(module, name)
