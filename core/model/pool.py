"""The keys and values of every cached token, allocated once. Knows slots, not who owns them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeAlias

import torch
from torch import Tensor

from ...kernels.paged import can_compile, slot_writer
from .parallel import Ranks
from .sizes import Sizes

Put: TypeAlias = Callable[[Tensor, Tensor, Tensor], None]


class KVPool:
    """Room for `num_slots` tokens. What a slot holds before it is written is undefined.

    On a CPU stored head by head, so that adjacent slots of a head are one contiguous matrix; on a
    GPU slot by slot, as kernels with pages have it.
    """

    def __init__(
        self,
        config: Sizes,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        heads = ranks.part(config.num_kv_heads)
        shape = (config.num_layers, 2, heads, num_slots, config.head_dim)
        storage = torch.empty(shape, dtype=dtype, device=device)
        if device.type != "cpu":
            storage = storage.view(*shape[:2], num_slots, heads, shape[-1]).transpose(2, 3)
        self.num_slots = num_slots
        self.storage = storage  # [layers, 2, kv_heads, slots, dim]
        self.layers: tuple[Tensor, ...] = storage.unbind()  # each [2, kv_heads, slots, dim]
        self._put, self._targets = _writer(self.layers)

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Put kv [tokens, kv_heads of keys, then of values, dim] into slots [tokens] of a layer."""
        self._put(self._targets[layer], slots, kv)


def _writer(layers: tuple[Tensor, ...]) -> tuple[Put, tuple[Tensor, ...]]:
    """What writes into such layers, and what it takes of each."""
    one = layers[0]
    if one.is_cuda and find_spec("triton") is not None:
        from ...kernels.gpu.writing import write

        return write, layers
    if one.is_cpu and one.dtype is torch.float32 and can_compile():
        return slot_writer(), tuple(layer.flatten(0, 1) for layer in layers)
    return _put, layers


def _put(layer: Tensor, slots: Tensor, kv: Tensor) -> None:
    num_heads = layer.shape[1]
    for part, mine in zip(layer, (kv[:, :num_heads], kv[:, num_heads:]), strict=True):
        part.transpose(0, 1).index_copy_(0, slots, mine)
