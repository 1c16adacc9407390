"""The keys and values of every cached token, allocated once. Knows slots, not who owns them."""

from __future__ import annotations

import torch
from torch import Tensor

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
        self._by_slot = tuple(layer.flatten(0, 1).transpose(0, 1) for layer in self.layers)

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Put kv [tokens, kv_heads of keys, then of values, dim] into slots [tokens] of a layer."""
        self._by_slot[layer].index_copy_(0, slots, kv)
