"""Attention, linear layers and sampling over torch tensors, for each kind of device.

Entry: `interface.Attention` and `backend.DecoderBackend`, what models call, and `devices`, which
chooses for a device. `reference` is the oracle. May import torch; `devices` also `core.api`.
Never knows models, batches or calls.
"""

from .interface import Attention, Ints, Past, Static, StaticAttention

__all__ = ["Attention", "Ints", "Past", "Static", "StaticAttention"]
