"""The LangChain adapters as a plugin; LangChain is imported when one of them is."""

from __future__ import annotations

from ..hookspecs import RegisterAdapter, hookimpl

_PACKAGE = __name__.rpartition(".")[0]


@hookimpl
def register_adapters(register: RegisterAdapter) -> None:
    """As the hook specifies."""
    register("langchain", f"{_PACKAGE}:ChatForkroot", needs=("langchain_core",))
    register("langchain-llm", f"{_PACKAGE}:Forkroot", needs=("langchain_core",))
