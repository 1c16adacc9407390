"""Caches of transformers over a pool: its modelling code stores keys and values by `update` and
gets back those of the whole sequences. Imports transformers; loaded only where that is
installed."""

# mypy: allow-subclassing-any

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ...api.protocol import InvalidModel
from ..pool import KVPool
from .groups import Group


class Cached(NamedTuple):
    """What one layer caches. layer: its number. num_heads, dim: the larger of keys' and values'."""

    layer: int
    num_heads: int
    dim: int


class _Layer(CacheLayerMixin):
    """A layer that keeps all tokens: a sliding window or a chunk is left to the model's mask."""

    def __init__(self, past_len: int) -> None:
        super().__init__()
        self._past_len, self._num_new = past_len, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the memory is the pool's."""

    def get_seq_length(self) -> int:
        """Cached tokens: with the new ones once these are stored."""
        return self._past_len + self._num_new

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        """Length and offset of the keys that `update` gives. query_length: a number, or the
        positions themselves before transformers 5.4."""
        count = len(query_length) if isinstance(query_length, Tensor) else query_length
        return self.get_seq_length() + int(count), 0

    def get_max_length(self) -> int:
        """-1: no maximum."""
        return -1

    get_max_cache_shape = get_max_length  # its older name


class _Cache(Cache):
    """Keys and values only: layers that keep another state are refused."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise InvalidModel("a layer keeps a state beside keys and values; expected these alone")

    get_conv_state = update_conv_state = _refuse
    get_recurrent_state = update_recurrent_state = _refuse
    update_indexer = has_previous_state = _refuse


class PagedCache(_Cache):
    """The past of one group of rows, for one forward pass. indices: of each layer that caches, its
    index in the pool. Slots of new tokens are written by `update`."""

    def __init__(self, pool: KVPool, indices: dict[int, int], group: Group) -> None:
        device = pool.storage.device
        past_len = group.past_len
        read = torch.from_numpy(group.slots).to(device)
        written = read[:, past_len:].reshape(-1).contiguous()
        layers = [
            _PagedLayer(pool, indices.get(layer), read, written, past_len)
            for layer in range(max(indices) + 1)
        ]
        super().__init__(layers=layers)


class _PagedLayer(_Layer):
    """index: of the layer in the pool; None: it does not cache. read: [rows, length] slots;
    written: [rows * new] slots of the new tokens."""

    def __init__(
        self, pool: KVPool, index: int | None, read: Tensor, written: Tensor, past_len: int
    ) -> None:
        super().__init__(past_len)
        self._pool, self._index = pool, index
        self._read, self._written = read, written

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Store [rows, heads, new, dim]; keys and values of all tokens, [rows, heads, length,
        dim]."""
        assert self._index is not None
        layer = self._pool.layers[self._index]
        kv = torch.cat([_padded(x, layer) for x in (key_states, value_states)], 1)
        kv = kv.transpose(1, 2).flatten(0, 1)  # [rows * new, heads of keys, then of values, dim]
        self._pool.write(self._index, self._written, kv.to(layer.dtype))
        self._num_new = key_states.shape[-2]
        return self._gathered(layer[0], key_states), self._gathered(layer[1], value_states)

    def _gathered(self, part: Tensor, new: Tensor) -> Tensor:
        """[rows, heads, length, dim] of part [heads, slots, dim], with heads, dim, dtype of `new`;
        row by row, so that each number is copied once."""
        heads, dim = new.shape[1], new.shape[-1]
        found = part.new_empty(len(self._read), heads, self._read.shape[1], part.shape[-1])
        for row, slots in zip(found, self._read, strict=True):
            torch.index_select(part[:heads], 1, slots, out=row)
        return found[..., :dim].to(new.dtype).contiguous()


def _padded(x: Tensor, layer: Tensor) -> Tensor:
    """[rows, heads, new, dim] padded with zeros to the heads and width of a pool."""
    heads, dim = layer.shape[1] - x.shape[1], layer.shape[-1] - x.shape[-1]
    return F.pad(x, (0, dim, 0, 0, 0, heads)) if heads or dim else x


class TrialCache(_Cache):
    """An empty cache that records what is stored. cached: by each layer that was used, in order."""

    def __init__(self, num_layers: int) -> None:
        self.cached: list[Cached] = []
        layers = [_TrialLayer(layer, self.cached) for layer in range(num_layers)]
        super().__init__(layers=layers)


class _TrialLayer(_Layer):
    def __init__(self, layer: int, cached: list[Cached]) -> None:
        super().__init__(0)
        self._layer, self._cached = layer, cached

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """The same keys and values. Raises InvalidModel for shapes that a pool cannot hold."""
        shapes = key_states.shape, value_states.shape
        if any(it.layer == self._layer for it in self._cached):
            raise InvalidModel(f"layer {self._layer} caches twice in one pass; expected once")
        if any(len(shape) != 4 for shape in shapes):
            text = " and ".join(str(list(shape)) for shape in shapes)
            raise InvalidModel(
                f"layer {self._layer} caches tensors of shape {text}; "
                "expected [rows, heads, tokens, width]"
            )
        num_heads = max(shape[1] for shape in shapes)
        self._cached.append(Cached(self._layer, num_heads, max(shape[3] for shape in shapes)))
        self._num_new = key_states.shape[-2]
        return key_states, value_states
