"""The keys and values of every cached token, allocated once. Knows slots, not who owns them."""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels.paged import can_compile, slot_writer
from .parallel import Ranks
from .sizes import Sizes


class KVPool:
    """Room for `num_slots` tokens. What a slot holds before it is written is undefined.

    Stored head by head, so that adjacent slots of a head are one contiguous matrix.
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
        self.num_slots = num_slots
        self.layers: tuple[Tensor, ...] = storage.unbind()  # each [2, kv_heads, slots, dim]
        self._by_head = tuple(layer.flatten(0, 1) for layer in self.layers)
        is_compiled = storage.is_cpu and dtype is torch.float32 and can_compile()
        self._put = slot_writer() if is_compiled else _put

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Put kv [tokens, kv_heads of keys, then of values, dim] into slots [tokens] of a layer."""
        self._put(self._by_head[layer], slots, kv)


def _put(pool: Tensor, slots: Tensor, kv: Tensor) -> None:
    pool.transpose(0, 1).index_copy_(0, slots, kv)
