"""Run programs that call a language model many times, and compute the prefixes they share once.

`connect` starts a runtime for a model, or connects to a server. Programs are written in the native
language (`function`, `gen`, `select` and roles), or send calls (`Call`) to the runtime. Importing
this package loads only the standard library; each name is loaded when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapters.connection import connect
    from .adapters.native import (
        CompiledProgram,
        Graph,
        InvalidGraph,
        NotTraceable,
        Program,
        ProgramState,
        UnsetVariable,
        assistant,
        function,
        gen,
        gen_int,
        gen_string,
        get_default_backend,
        image,
        load,
        role,
        select,
        set_default_backend,
        system,
        usage,
        user,
        video,
    )
    from .core.api.keywords import UnknownKeyword
    from .core.api.protocol import (
        Backend,
        BackendClosed,
        Call,
        CallFailed,
        CallTooLarge,
        Chat,
        Choices,
        Completion,
        DeadlineExceeded,
        EngineDied,
        ForkHint,
        ForkrootError,
        Grammar,
        InvalidCall,
        InvalidModel,
        JsonSchema,
        Message,
        NotPicklable,
        Overloaded,
        ProgramError,
        Regex,
        Sampling,
        Text,
        Tokens,
        UnsupportedCall,
    )

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "BackendClosed",
    "Call",
    "CallFailed",
    "CallTooLarge",
    "Chat",
    "Choices",
    "CompiledProgram",
    "Completion",
    "DeadlineExceeded",
    "EngineDied",
    "ForkHint",
    "ForkrootError",
    "Grammar",
    "Graph",
    "InvalidCall",
    "InvalidGraph",
    "InvalidModel",
    "JsonSchema",
    "Message",
    "NotPicklable",
    "NotTraceable",
    "Overloaded",
    "Program",
    "ProgramError",
    "ProgramState",
    "Regex",
    "Sampling",
    "Text",
    "Tokens",
    "UnknownKeyword",
    "UnsetVariable",
    "UnsupportedCall",
    "assistant",
    "connect",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_default_backend",
    "image",
    "load",
    "role",
    "select",
    "set_default_backend",
    "system",
    "usage",
    "user",
    "video",
]

_NATIVE = (  # of the names above; most others are of the protocol
    *("CompiledProgram", "Graph", "InvalidGraph", "NotTraceable", "load"),
    *("Program", "ProgramState", "UnsetVariable", "assistant", "function", "gen", "gen_int"),
    *("gen_string", "get_default_backend", "image", "role", "select", "set_default_backend"),
    *("system", "usage", "user", "video"),
)
_MODULE_OF = {
    **dict.fromkeys(__all__, "core.api.protocol"),
    **dict.fromkeys(_NATIVE, "adapters.native"),
    "connect": "adapters.connection",
    "UnknownKeyword": "core.api.keywords",
}


class _Alias(ModuleType):
    """Another name of a module of this package, which is loaded at its first use.

    `forkroot.sglang` is one, of `forkroot.adapters.sglang`: a file `sglang.py` here would be what
    `import sglang` finds in programs that are started in a checkout. Its types are in `sglang.pyi`.
    """

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return __version__
        if name.startswith("__") and name != "__all__":  # `inspect` asks each module for its file
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(self._target), name)

    def __dir__(self) -> list[str]:
        return sorted([*self.__all__, "__version__"])


_SGLANG = f"{__name__}.sglang"
sys.modules[_SGLANG] = _Alias(_SGLANG, f"{__name__}.adapters.sglang")


def __getattr__(name: str) -> Any:
    if name == "sglang":
        return sys.modules[_SGLANG]
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_suggestion(name)}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _suggestion(name: str) -> str:
    """The end of the error for an unknown name; empty for private ones, which programs probe
    for."""
    if name.startswith("_"):
        return ""
    from .core.common.suggestions import did_you_mean

    return did_you_mean(name, __all__) or "; dir(forkroot) lists its names"
