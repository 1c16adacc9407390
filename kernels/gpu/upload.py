"""Plain integers to a device, all of a step in one copy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..interface import Ints

ALIGNMENT = 4  # numbers: 16 bytes, so that kernels may load four at a time


def uploaded(arrays: Sequence[Ints], device: torch.device) -> list[Tensor]:
    """The same numbers on a device: int32 tensors that share one buffer, copied there
    without waiting."""
    sizes = [-(-array.size // ALIGNMENT) * ALIGNMENT for array in arrays]
    ends = np.cumsum([0, *sizes]).tolist()
    host = torch.empty(max(ends[-1], 1), dtype=torch.int32, pin_memory=device.type == "cuda")
    flat = host.numpy()
    for array, start in zip(arrays, ends, strict=False):
        flat[start : start + array.size] = array.ravel()
    device_buffer = host.to(device, non_blocking=True)
    return [
        device_buffer[start : start + array.size].view(array.shape)
        for array, start in zip(arrays, ends, strict=False)
    ]
