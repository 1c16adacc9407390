"""Counts the bytes of a device that recorded steps take, where there is no GPU: on torch's meta
device, which allocates nothing, so that models of any size can be counted."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from forkroot.core.model.runner.graphs import Run

BLOCK = 512  # bytes: torch's allocator gives whole ones


class AllocationCounter(TorchDispatchMode):
    """Within this, counts the bytes of tensors on one device that operators make: `alive` now,
    and `peak` at most."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.alive = self.peak = 0
        self._device, self._known = device, dict[int, Any]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        old = {id(it.untyped_storage()) for it in tree_leaves((args, kwargs)) if _is_tensor(it)}
        for tensor in filter(_is_tensor, tree_leaves(made)):
            storage = tensor.untyped_storage()
            if tensor.device.type == self._device.type and id(storage) not in old:
                self._add(storage)
        return made

    def _add(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self._known:
            return
        num_bytes = -(-storage.nbytes() // BLOCK) * BLOCK
        self._known[id(storage)] = weakref.finalize(storage, self._free, id(storage), num_bytes)
        self.alive += num_bytes
        self.peak = max(self.peak, self.alive)

    def _free(self, key: int, num_bytes: int) -> None:
        del self._known[key]
        self.alive -= num_bytes


class CountingRecorder:
    """A `Recorder` that keeps what a CUDA graph keeps. kept: bytes that each recording keeps alive.
    peaks: that each takes while it runs. highest: bytes alive at the worst moment."""

    def __init__(self, counter: AllocationCounter) -> None:
        self._counter = counter
        self.kept, self.peaks = list[int](), list[int]()
        self.highest = 0

    def __call__(self, run: Run) -> Run:
        before = self._counter.alive
        self._counter.peak = before
        made = run()
        self.highest = max(self.highest, self._counter.peak)
        self.peaks.append(self._counter.peak - before)
        self.kept.append(self._counter.alive - before)
        return lambda: made


def _is_tensor(it: object) -> bool:
    return isinstance(it, Tensor)


class EmptyWeights:
    """Stands in for a checkpoint: tensors of the right shapes on a device that has no memory."""

    def __init__(self, shapes: Any, dtype: torch.dtype, device: torch.device) -> None:
        self._shapes, self._dtype, self._device = shapes, dtype, device

    def take(self, name: str) -> Tensor:
        """As `Weights.take`."""
        return torch.zeros(self._shapes[name], dtype=self._dtype, device=self._device)

    def take_part(self, name: str, dim: int, part: slice) -> Tensor:
        """As `Weights.take_part`."""
        return self.take(name).narrow(dim, part.start, part.stop - part.start).clone()
