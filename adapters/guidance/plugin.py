"""The Guidance adapter as a plugin; Guidance is imported when its factory is."""

from __future__ import annotations

from ..hookspecs import RegisterAdapter, hookimpl

_PACKAGE = __name__.rpartition(".")[0]


@hookimpl
def register_adapters(register: RegisterAdapter) -> None:
    """As the hook specifies."""
    register("guidance", f"{_PACKAGE}:Forkroot", needs=("guidance",))
