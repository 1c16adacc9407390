"""Copies the results of a step to the host, with one wait for all of them."""

from __future__ import annotations

import torch
from torch import Tensor


class Fetch:
    """Copies in flight from a device to the host. On a CPU the tensors are used as they are."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._is_cuda = device, device.type == "cuda"
        self._has_copies = False
        self._done: torch.cuda.Event | None = None

    def add(self, tensor: Tensor) -> Tensor:
        """Start to copy a tensor; returns the copy, valid after `wait`."""
        if not self._is_cuda:
            return tensor
        self._has_copies = True
        on_host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return on_host.copy_(tensor, non_blocking=True)

    def seal(self) -> None:
        """End adding copies; `wait` does not wait for what the device is given from now on."""
        if self._has_copies:
            with torch.cuda.device(self._device):  # any thread may call, whatever its device
                self._done = torch.cuda.Event()
                self._done.record()

    def wait(self) -> None:
        """Wait for all copies."""
        if self._done is not None:
            self._done.synchronize()
