"""The client of a forkroot server, as a plugin."""

from __future__ import annotations

from ..hookspecs import RegisterAdapter, hookimpl

_PACKAGE = __name__.rpartition(".")[0]


@hookimpl
def register_adapters(register: RegisterAdapter) -> None:
    """As the hook specifies."""
    register("http", f"{_PACKAGE}.client:RemoteBackend")
