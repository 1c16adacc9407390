"""How kernels are launched: on a GPU, in Triton's interpreter, or only compiled to be looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_compiled: ContextVar[list[Any] | None] = ContextVar("compiled", default=None)


@dataclass(frozen=True, slots=True)
class Launch:
    """Compiler options of a launch."""

    num_warps: int = 4
    num_stages: int = 2

    def __call__(self, kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
        """Run a kernel on a grid; nothing for an empty one."""
        if 0 in grid:
            return
        constants |= {"num_warps": self.num_warps, "num_stages": self.num_stages}
        compiled = _compiled.get()
        if compiled is None:
            kernel[grid](*args, **constants)
        else:
            compiled.append(kernel.warmup(*args, **constants, grid=grid))


@contextmanager
def only_compiling() -> Iterator[list[Any]]:
    """Within this, launches compile their kernels for Triton's active target and run none: what
    the compiler made of each goes into the list."""
    compiled: list[Any] = []
    token = _compiled.set(compiled)
    try:
        yield compiled
    finally:
        _compiled.reset(token)


def is_interpreted() -> bool:
    """Whether Triton runs kernels in Python, on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_upcast(x: Tensor) -> bool:
    """Whether products must be made in float32: the interpreter's are wrong in bfloat16."""
    return is_interpreted() and x.dtype is torch.bfloat16


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()
