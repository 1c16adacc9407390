"""Attention, linear layers and sampling over torch tensors, for each kind of device.

Entry: `interface.Attention`, what a kernel computes, and `devices`, which picks kernels for a
device. `reference` is the oracle. May import torch and, in `devices`, the errors of `core.api`.
Never knows models, batches or calls.
"""

from .interface import Attention, Ints, Past, Static, StaticAttention

__all__ = ["Attention", "Ints", "Past", "Static", "StaticAttention"]
