"""Memory for what is large and read all the time: in large pages, where the system has them, so
that fewer addresses have to be looked up."""

from __future__ import annotations

import math
import mmap
import threading

import torch
from torch import Tensor

_LARGE = 1 << 21  # bytes of a large page
_SHARED = 8 * _LARGE  # bytes in which small tensors lie side by side
_LINE = 64  # bytes from whose multiple each begins
_lock = threading.Lock()
_rest = torch.empty(0, dtype=torch.uint8)


def roomy(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A new tensor on the CPU, of any numbers. Small ones share pages, which are given back when
    the last of these is."""
    size = math.prod(shape) * dtype.itemsize
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype)
    memory = _pages(size) if size >= _LARGE else _slice(size)
    return memory.view(dtype).view(shape)


def _pages(size: int) -> Tensor:
    memory = mmap.mmap(-1, size + _LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    numbers = torch.frombuffer(memory, dtype=torch.uint8)
    start = -numbers.data_ptr() % _LARGE
    return numbers[start : start + size]


def _slice(size: int) -> Tensor:
    global _rest
    with _lock:
        if len(_rest) < size:
            _rest = _pages(_SHARED)
        found, _rest = _rest[:size], _rest[size + -size % _LINE :]
    return found
