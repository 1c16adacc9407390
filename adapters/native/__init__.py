"""The native language: programs of `gen`, `select`, `fork` and `join` over any backend.

Entry: `program.function` and `state.ProgramState`.
May import `core.api`, `core.common`, `core.media`, `adapters` and `adapters.hints`.
Never knows who answers, nor a framework.
"""

from .compiled import CompiledProgram, load
from .compiler.errors import NotTraceable
from .compiler.graph.errors import InvalidGraph
from .compiler.graph.graph import Graph
from .interpreter.variables import UnsetVariable
from .language.settings import get_default_backend, set_default_backend
from .movement.model_reorderer import ModelReorderer
from .movement.rules import Rules
from .primitives import (
    assistant,
    gen,
    gen_int,
    gen_string,
    image,
    role,
    select,
    system,
    user,
    video,
)
from .program import Program, function
from .state import ForkGroup, ProgramState
from .summary import BatchSummary, usage

__all__ = [
    "BatchSummary",
    "CompiledProgram",
    "ForkGroup",
    "Graph",
    "InvalidGraph",
    "ModelReorderer",
    "NotTraceable",
    "Program",
    "ProgramState",
    "Rules",
    "UnsetVariable",
    "assistant",
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
