"""Guidance: `Forkroot("tiny")` in place of `models.Transformers(...)`, and programs run unchanged.

Entry: `Forkroot`. Guidance itself is loaded on first use.
May import `core.api`, `core.common`, `adapters` and `adapters.common`.
Never knows an engine, nor another framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names

if TYPE_CHECKING:
    from .model import Forkroot

__all__ = ["Forkroot"]

_TEXT = "forkroot.adapters.guidance needs the package {missing!r}"
_LIBRARIES = ("guidance", "llguidance")
__getattr__ = lazy_names(__name__, {"Forkroot": "model"}, "guidance", _TEXT, _LIBRARIES)
