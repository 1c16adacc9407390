"""Memory in large pages, where the system has them: fewer TLB misses in large tensors that are read
all the time."""

from __future__ import annotations

import contextlib
import math
import mmap

import torch
from torch import Tensor

LARGE = 1 << 21  # bytes of a large page


def empty_in_large_pages(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A new uninitialized tensor on the CPU."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype)
    memory = mmap.mmap(-1, size + LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system that has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    numbers = torch.frombuffer(memory, dtype=torch.uint8)
    start = -numbers.data_ptr() % LARGE
    return numbers[start : start + size].view(dtype).view(shape)
