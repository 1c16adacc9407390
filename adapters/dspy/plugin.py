"""The DSPy adapter as a plugin; DSPy is imported when its factory is."""

from __future__ import annotations

from ..hookspecs import RegisterAdapter, hookimpl

_PACKAGE = __name__.rpartition(".")[0]


@hookimpl
def register_adapters(register: RegisterAdapter) -> None:
    """As the hook specifies."""
    register("dspy", f"{_PACKAGE}:LM", needs=("dspy",))
