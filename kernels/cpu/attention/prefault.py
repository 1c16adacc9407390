"""Prefaults pages of memory. The system allocates and clears a page when it is first written, which
takes time, most of all in a virtual machine: 0.3 to 4.5 ms for each 2 MiB. In 8 layers of 4 heads
these are 64 for every 8,192 slots.

Threads let the system do so before pages are needed (Linux 5.14). Elsewhere pages fault when
they are written. The threads write nothing themselves.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading

from torch import Tensor

from ..pages import LARGE

_POPULATE = 23  # Linux: MADV_POPULATE_WRITE
_LEAST = 4  # pages of slots in a pool for which this is worth a thread


class Prefaulter:
    """Prefaults the pages of a pool [..., slots, dim], whose slots come into use one after another,
    one page of slots before they are used. Does nothing for a small pool, or one that is not
    contiguous in CPU memory.

    Mutable: it remembers up to which slot pages are prefaulted, or soon will be.
    """

    def __init__(self, storage: Tensor) -> None:
        self._storage = storage
        self._num_slots = LARGE // (storage.shape[-1] * storage.element_size())  # of a page
        is_large = storage.shape[-2] > _LEAST * self._num_slots
        is_here = storage.is_cpu and storage.is_contiguous() and sys.platform == "linux"
        self._known = 0 if is_large and is_here else storage.shape[-2]
        self.use(0)

    def use(self, slot: int) -> threading.Thread | None:
        """This slot is about to be written; those before it were, or never will be. Gives the
        thread that was started, if any."""
        first, most = self._known, self._storage.shape[-2]
        if first >= most or slot + self._num_slots // 2 < first:
            return None
        self._known = min(max(first, slot) + self._num_slots, most)
        given = self._storage, first, self._known
        thread = threading.Thread(target=_populate, args=given, name="forkroot-pages", daemon=True)
        thread.start()
        return thread


def _populate(storage: Tensor, first: int, last: int) -> None:
    """Prefault the pages of slots first:last; does nothing where the system cannot."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    slot_bytes = storage.shape[-1] * storage.element_size()
    for row in storage.flatten(0, -3):
        start = row.data_ptr() + first * slot_bytes
        start -= start % mmap.PAGESIZE
        size = row.data_ptr() + last * slot_bytes - start
        if libc.madvise(start, size, _POPULATE):
            return
