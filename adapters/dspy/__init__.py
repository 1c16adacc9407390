"""DSPy: a program runs on our runtime by changing its LM.

    import dspy
    from forkroot.adapters.dspy import LM

    dspy.configure(lm=LM("tiny"))

Entry: `LM`. Nothing of DSPy is imported before one of the names is used.
May import `core.api`, `core.common`, `adapters`, `adapters.hints` and `adapters.common`.
Never knows an engine, nor another framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names

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
_TEXT = f"{__name__}.{{name}} needs DSPy"
__getattr__ = lazy_names(__name__, _MODULE_OF, "dspy", _TEXT, ("dspy", "pydantic"), ImportError)
