"""Brings what a step gives to the host: all of it is waited for once."""

from __future__ import annotations

import torch
from torch import Tensor


class Fetch:
    """Tensors on their way from a device. On a CPU they are there already."""

    def __init__(self, device: torch.device) -> None:
        self._is_far = device.type == "cuda"
        self._is_asked = False
        self._done: torch.cuda.Event | None = None

    def add(self, tensor: Tensor) -> Tensor:
        """The same numbers on the host, once this has waited."""
        if not self._is_far:
            return tensor
        self._is_asked = True
        here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return here.copy_(tensor, non_blocking=True)

    def seal(self) -> None:
        """Nothing more is added; what is asked of the device from now on is not waited for."""
        if self._is_asked:
            self._done = torch.cuda.Event()
            self._done.record()

    def wait(self) -> None:
        """Until all is here."""
        if self._done is not None:
            self._done.synchronize()
