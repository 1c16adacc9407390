"""Guidance: `Forkroot("tiny")` in place of `models.Transformers(...)`, and programs run unchanged.

Entry: `Forkroot`. Guidance itself is loaded on first use.
May import `core.api`, `core.common`, `adapters` and `adapters.common`.
Never knows an engine, nor another framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.common.extras import how_to_install

if TYPE_CHECKING:
    from .model import Forkroot

__all__ = ["Forkroot"]


def __getattr__(name: str) -> type[Forkroot]:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .model import Forkroot
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("guidance", "llguidance"):
            raise
        hint = how_to_install("guidance")
        text = f"forkroot.adapters.guidance needs the package {missing!r}: {hint}"
        raise ModuleNotFoundError(text, name=missing) from error
    return Forkroot
