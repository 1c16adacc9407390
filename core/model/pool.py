"""The keys and values of every cached token, allocated once. Knows slots, not who owns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor

from ...kernels.cpu.attention.decode import can_read, slot_writer
from ...kernels.cpu.pages import empty_in_large_pages
from ...kernels.devices import has_triton
from ..api.errors import InvalidCall, Shown
from .parallel import Ranks
from .sizes import Sizes

Put: TypeAlias = Callable[[Tensor, Tensor, Tensor], None]


class KVPool:
    """Room for `num_slots` tokens. What a slot holds before it is written is undefined.

    On a CPU stored head by head, so that adjacent slots of a head are one contiguous matrix; on a
    GPU slot by slot, as kernels with pages have it, and with one slot more, behind the others, for
    what is thrown away. is_by_slot: stored so wherever it is, for tests. Raises
    InvalidCall, naming num_slots, where there is no memory for it.
    """

    def __init__(
        self,
        config: Sizes,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks,
        is_by_slot: bool = False,
    ) -> None:
        heads, dim = ranks.part(config.num_kv_heads), config.head_dim
        self.num_slots = num_slots
        self.has_spare = is_by_slot or device.type != "cpu"
        num_bytes = config.num_layers * 2 * num_slots * heads * dim * dtype.itemsize
        with allocating("num_slots", num_slots, num_bytes):
            storage = self._allocate((config.num_layers, 2, heads, num_slots, dim), dtype, device)
        self.storage = storage  # [layers, 2, kv_heads, slots, dim]
        self.layers: tuple[Tensor, ...] = storage.unbind()  # each [2, kv_heads, slots, dim]
        self._put, self._targets = _writer(self.layers, self.has_spare)

    def _allocate(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        if not self.has_spare:
            return empty_in_large_pages(shape, dtype)
        layers, parts, heads, num_slots, dim = shape
        by_slot = (layers, parts, num_slots + 1, heads, dim)
        storage = torch.empty(by_slot, dtype=dtype, device=device).transpose(2, 3)
        storage[:, :, :, num_slots] = 0
        return storage

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Put kv [tokens, kv_heads of keys, then of values, dim] into slots [tokens] of a layer."""
        self._put(self._targets[layer], slots, kv)


def _writer(layers: tuple[Tensor, ...], is_by_slot: bool) -> tuple[Put, tuple[Tensor, ...]]:
    """What writes into such layers, and what it takes of each."""
    one = layers[0]
    if is_by_slot and has_triton(one.device):
        from ...kernels.gpu.attention.kv_write import write

        return write, layers
    if not is_by_slot and one.is_cpu and can_read(one.dtype):
        return slot_writer(one.dtype), tuple(layer.flatten(0, 1) for layer in layers)
    return _put, layers


def _put(layer: Tensor, slots: Tensor, kv: Tensor) -> None:
    num_heads, kv = layer.shape[1], kv.to(layer.dtype)
    for part, mine in zip(layer, (kv[:, :num_heads], kv[:, num_heads:]), strict=True):
        part.transpose(0, 1).index_copy_(0, slots, mine)


@contextmanager
def allocating(setting: str, value: int, num_bytes: int, where: str = "memory") -> Iterator[None]:
    """Allocate `num_bytes` in the body. Raises InvalidCall, which names the setting, where the
    allocator fails. where: what is allocated, for the message."""
    try:
        yield
    except (RuntimeError, OSError, MemoryError) as error:
        raise too_large(setting, value, num_bytes, where) from error


def too_large(setting: str, value: int, num_bytes: int, where: str = "memory") -> InvalidCall:
    """The error of a setting that asks for more than there is."""
    shown = Shown(f"{value} ({num_bytes / 2**30:.1f} GiB of KV)")
    return InvalidCall(setting, shown, f"as many tokens as fit in free {where}")
