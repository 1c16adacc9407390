"""LangChain on forkroot: `ChatForkroot`, a chat model, and `Forkroot`, an LLM.

    from forkroot.adapters.langchain import ChatForkroot

    model = ChatForkroot(model="tiny")

Entry: these two. LangChain itself is loaded at the first use of one of them.
May import `core.api`, `core.common`, `adapters` and `adapters.common`.
Never knows an engine, nor another framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names

if TYPE_CHECKING:
    from .chat import ChatForkroot
    from .llm import Forkroot

__all__ = ["ChatForkroot", "Forkroot"]

_MODULE_OF = {"ChatForkroot": "chat", "Forkroot": "llm"}
_TEXT = "{name} needs langchain-core"
__getattr__ = lazy_names(__name__, _MODULE_OF, "langchain", _TEXT, ("langchain_core",))


def __dir__() -> list[str]:
    return sorted(__all__)
