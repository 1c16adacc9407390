"""The native language: programs of `gen`, `select`, `fork` and `join` over any backend."""

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
from .settings import get_default_backend, set_default_backend
from .state import ForkGroup, ProgramState
from .variables import UnsetVariable

__all__ = [
    "ForkGroup",
    "Program",
    "ProgramState",
    "UnsetVariable",
    "assistant",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_default_backend",
    "image",
    "role",
    "select",
    "set_default_backend",
    "system",
    "user",
    "video",
]
