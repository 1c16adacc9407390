"""Which attention a device has."""

from __future__ import annotations

import torch

from . import Attention
from .cpu import CpuAttention
from .plain import PlainAttention


def attention_for(
    device: torch.device, num_slots: int, num_kv_heads: int, dtype: torch.dtype
) -> Attention:
    """The attention of a device, over a pool of so many slots and heads of keys, of this dtype."""
    if device.type == "cpu":
        return CpuAttention(num_slots, num_kv_heads, dtype)
    return PlainAttention(device)
