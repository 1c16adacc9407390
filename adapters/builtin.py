"""The built-in adapters, registered like third-party plugins; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .hookspecs import RegisterAdapter, hookimpl

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, eq=False)
class BuiltIn:
    """A plugin. factories: "module:attribute" by each adapter's name. needs: what they import."""

    factories: Mapping[str, str]
    needs: tuple[str, ...] = ()

    @hookimpl
    def register_adapters(self, register: RegisterAdapter) -> None:
        """As the hook specifies."""
        for name, factory in self.factories.items():
            register(name, f"{_PACKAGE}.{factory}", self.needs)


native = BuiltIn({"native": "native:function"})
http = BuiltIn({"http": "http.client:RemoteBackend"})
dspy = BuiltIn({"dspy": "dspy:LM"}, ("dspy",))
guidance = BuiltIn({"guidance": "guidance:Forkroot"}, ("guidance",))
langchain = BuiltIn(
    {"langchain": "langchain:ChatForkroot", "langchain-llm": "langchain:Forkroot"},
    ("langchain_core",),
)
