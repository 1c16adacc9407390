"""LangChain on forkroot: `ChatForkroot`, a chat model, and `Forkroot`, an LLM.

    from forkroot.adapters.langchain import ChatForkroot

    model = ChatForkroot(model="tiny")

Entry: these two. LangChain itself is loaded at the first use of one of them.
May import `core.api`, `core.common`, `adapters` and `adapters.common`.
Never knows an engine, nor another framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...core.common.extras import how_to_install

if TYPE_CHECKING:
    from .chat import ChatForkroot
    from .llm import Forkroot

__all__ = ["ChatForkroot", "Forkroot"]

_MODULE_OF = {"ChatForkroot": "chat", "Forkroot": "llm"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        text = f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(text)
    try:
        value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "langchain_core":
            raise
        text = f"{name} needs langchain-core: {how_to_install('langchain')}"
        raise ModuleNotFoundError(text, name=error.name) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
