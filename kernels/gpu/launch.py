"""How kernels are launched: on a GPU, in Triton's interpreter, or only compiled to be looked at."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

WITHOUT_GPU = 99 * 1024  # bytes of shared memory that kernels may use in the interpreter

_compiled: ContextVar[list[Any] | None] = ContextVar("compiled", default=None)
_target_memory: ContextVar[int | None] = ContextVar("target_memory", default=None)


@dataclass(frozen=True, slots=True)
class Launch:
    """Compiler options of a launch. max_registers: of a thread; None: as many as the assembler
    takes, which may spill in order to fit more programs on a multiprocessor."""

    num_warps: int = 4
    num_stages: int = 2
    max_registers: int | None = None

    def __call__(self, kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
        """Run a kernel on a grid; nothing for an empty one."""
        if 0 in grid:
            return
        constants |= {"num_warps": self.num_warps, "num_stages": self.num_stages}
        if self.max_registers is not None:
            constants["maxnreg"] = self.max_registers
        compiled = _compiled.get()
        if compiled is None:
            kernel[grid](*args, **constants)
        else:
            compiled.append(kernel.warmup(*args, **constants, grid=grid))


@contextmanager
def only_compiling(shared_memory: int = WITHOUT_GPU) -> Iterator[list[Any]]:
    """Within this, launches compile their kernels for Triton's active target, where a program may
    use `shared_memory` bytes, and run none: what the compiler made of each goes into the list."""
    compiled: list[Any] = []
    token, memory_token = _compiled.set(compiled), _target_memory.set(shared_memory)
    try:
        yield compiled
    finally:
        _compiled.reset(token)
        _target_memory.reset(memory_token)


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may use on a device; within `only_compiling`, on the
    target."""
    return _target_memory.get() or _shared_memory(device)


@functools.cache
def _shared_memory(device: torch.device) -> int:
    if device.type != "cuda":
        return WITHOUT_GPU
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", WITHOUT_GPU))


def is_interpreted() -> bool:
    """Whether Triton runs kernels in Python, on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_upcast(x: Tensor) -> bool:
    """Whether products must be made in float32: the interpreter's are wrong in bfloat16."""
    return is_interpreted() and x.dtype is torch.bfloat16


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()
