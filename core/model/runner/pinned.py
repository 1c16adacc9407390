"""Host memory that a GPU reads and writes directly, of exactly the size that is asked for: torch's
own pinned memory is rounded up to a power of two."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch

from ....kernels.cpu.pages import empty_in_large_pages

PORTABLE = 1  # locked for all devices


class Cudart(Protocol):
    """What is used of the CUDA runtime (`torch.cuda.cudart`); 0 is success."""

    def cudaHostRegister(self, pointer: int, num_bytes: int, flags: int) -> Any:
        """Lock pages of host memory, and map them for devices."""

    def cudaHostUnregister(self, pointer: int) -> Any:
        """Undo this."""


class PinnedMemory:
    """Uninitialized `numbers` [size] in page-locked host memory, until `close`. cudart: None:
    torch's. Raises OSError or MemoryError where there is no memory, or no more may be locked."""

    def __init__(self, size: int, dtype: torch.dtype, cudart: Cudart | None = None) -> None:
        runtime: Cudart = cudart or torch.cuda.cudart()
        self.numbers = empty_in_large_pages((size,), dtype)
        pointer = self.numbers.data_ptr()
        code = int(runtime.cudaHostRegister(pointer, size * dtype.itemsize, PORTABLE))
        if code:
            raise MemoryError(f"cudaHostRegister failed with error {code}")
        self._unregister = weakref.finalize(self, runtime.cudaHostUnregister, pointer)
        self._unregister.atexit = False  # the process's end does it, and the runtime may be gone

    def close(self) -> None:
        """Unlock the pages: no copy may be in flight. May be called twice."""
        self._unregister()
