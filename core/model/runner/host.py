"""Host memory, or a file, for keys and values that are offloaded from the pool."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...api.batch import Copy, Ints
from ...api.errors import InvalidCall
from ...common.memory import available_memory
from ..pool import allocating, too_large
from ..sizes import STAGING_BYTES
from .pinned import Cudart, PinnedMemory

BLOCK = 256  # tokens that are copied at a time, at most


@dataclass(frozen=True, slots=True)
class Host:
    """Size of the host tier in tokens, and where it is. file: a new file, removed with its process;
    None: in memory, pinned where a GPU reads it directly."""

    num_slots: int = 0
    file: Path | None = None


class HostStore:
    """Storage for tokens of every layer of a pool, whose memory is [layers, 2, kv_heads, slots,
    dim] with any strides. Raises InvalidCall for a size or a file that cannot be allocated.

    cudart: pins memory; None: torch's where the pool is on a GPU, else none does.
    """

    _pinned: PinnedMemory | None = None

    def __init__(self, layers: Tensor, host: Host, cudart: Cudart | None = None) -> None:
        self._layers = layers
        num_slots, file = host.num_slots, host.file
        num_layers, parts, heads, _, dim = layers.shape
        shape = (num_slots, num_layers, parts, heads, dim)
        size = num_slots * num_layers * parts * heads * dim
        num_bytes = size * layers.dtype.itemsize
        if file is not None:
            store = _mapped(file, size, layers.dtype, num_slots)
        elif layers.is_cuda or cudart is not None:
            self._pinned = _pinned(size, layers.dtype, num_slots, cudart)
            store = self._pinned.numbers
        else:
            with allocating("host_slots", num_slots, num_bytes):
                store = torch.empty(size, dtype=layers.dtype)
        self._store = store.view(shape)
        self._block = min(BLOCK, max(1, STAGING_BYTES * num_slots // (2 * num_bytes)))

    def copy(self, it: Copy) -> None:
        """Copy tokens to this store or back, so many at a time that the device needs at most
        `STAGING_BYTES` for them, twice: as they were, and in the other's order."""
        move = self._load if it.is_load else self._save
        for start in range(0, len(it.slots), self._block):
            block = slice(start, start + self._block)
            move(it.slots[block], it.host[block])

    def close(self) -> None:
        """Free the memory, once all copies are made. It cannot be used any more."""
        if self._layers.is_cuda:
            torch.cuda.synchronize(self._layers.device)
        if self._pinned is not None:
            self._pinned.close()
        self._pinned = None
        del self._store

    def _save(self, slots: Ints, host: Ints) -> None:
        found = self._layers.index_select(3, self._on_device(slots)).permute(3, 0, 1, 2, 4)
        span = _span(host)
        if span is not None:
            self._store[span].copy_(found, non_blocking=True)
        else:
            self._store.index_copy_(0, _index(host), found.to(self._store.device))

    def _load(self, slots: Ints, host: Ints) -> None:
        span = _span(host)
        if span is None and self._layers.is_cuda:  # a save may still be in flight
            torch.cuda.current_stream(self._layers.device).synchronize()
        rows = self._store[span] if span is not None else self._store.index_select(0, _index(host))
        found = rows.to(self._layers.device, non_blocking=True).permute(1, 2, 3, 0, 4)
        self._layers.index_copy_(3, self._on_device(slots), found)

    def _on_device(self, slots: Ints) -> Tensor:
        return _index(slots).to(self._layers.device, non_blocking=True)


def _pinned(size: int, dtype: torch.dtype, num_slots: int, cudart: Cudart | None) -> PinnedMemory:
    num_bytes = size * dtype.itemsize
    if num_bytes > available_memory():  # locking writes all of it, which could end the process
        raise too_large("host_slots", num_slots, num_bytes)
    with allocating("host_slots", num_slots, num_bytes):
        return PinnedMemory(size, dtype, cudart)


def _mapped(file: Path, size: int, dtype: torch.dtype, num_slots: int) -> Tensor:
    """Numbers in a new file, which has no name any more: the map keeps it."""
    folder, num_bytes = file.absolute().parent, size * dtype.itemsize
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except (OSError, ValueError) as error:
        allowed = f"the name of a new file in a folder that exists ({error})"
        raise InvalidCall("host_file", str(file), allowed) from error
    try:
        file.unlink()
        free = os.fstatvfs(descriptor)
        if num_bytes > free.f_bavail * free.f_frsize:  # nothing is filled up in vain
            raise too_large("host_slots", num_slots, num_bytes, f"space of {folder} (host_file)")
        with allocating("host_slots", num_slots, num_bytes, f"space of {folder} (host_file)"):
            os.posix_fallocate(descriptor, 0, num_bytes)  # else a write to a full disk is a SIGBUS
            return torch.frombuffer(mmap.mmap(descriptor, num_bytes), dtype=dtype)
    finally:
        os.close(descriptor)


def _index(slots: Ints) -> Tensor:
    return torch.from_numpy(slots.astype(np.int64))


def _span(slots: Ints) -> slice | None:
    """The range that these slots are, if they are adjacent and ascend."""
    first = int(slots[0])
    is_adjacent = len(slots) == 1 or bool((np.diff(slots) == 1).all())
    return slice(first, first + len(slots)) if is_adjacent else None
