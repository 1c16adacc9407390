"""How far a kernel may be from its oracle."""

from __future__ import annotations

import torch
from torch import Tensor

BARS = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def distance(found: Tensor, wanted: Tensor) -> float:
    """Length of the difference, relative to what was wanted; NaN passes nowhere."""
    found, wanted = found.double().cpu(), wanted.double().cpu()
    return float((found - wanted).norm() / wanted.norm())


def is_close(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> bool:
    return found.shape == wanted.shape and distance(found, wanted) <= BARS[dtype]


def poisoned(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory in which everything that is not written is visible."""
    return torch.full(shape, torch.nan, dtype=dtype, device=device)
