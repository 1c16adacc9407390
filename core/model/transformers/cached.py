"""Decoders of transformers whose attention is computed by their own code: each pass gets a cache
over our pool. Slower than our kernels, as every layer gathers what it reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ....kernels.interface import Attention
from ...api.protocol import InvalidModel
from ..inputs import Inputs
from ..pool import KVPool
from ..sizes import Sizes
from .decoder import Decoder, DecoderModel
from .groups import Group, grouped
from .trial import NUM_TRIED, Layers


class CachedModel(DecoderModel):
    """The `Model` of a decoder of transformers, by a cache. layers: the numbers of those that
    cache, in the pool's order. can_pad: whether rows with pasts of different lengths are computed
    together, padded on the left; set to False for models that count positions from the padding."""

    windows: tuple[int | None, ...] = ()

    def __init__(self, decoder: Decoder, config: Sizes, layers: Sequence[int]) -> None:
        super().__init__(decoder)
        self.config = config
        self.can_pad = True
        self._layer_indices = {layer: index for index, layer in enumerate(layers)}

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """As `Model.hidden`; `attention` is not used."""
        assert inputs.past is not None
        groups = list(grouped(inputs.past, self.can_pad))
        parts = [self._states(inputs, pool, group) for group in groups]
        found = np.concatenate([group.tokens.ravel() for group in groups])
        order = torch.from_numpy(np.argsort(found)).to(self.device)
        if inputs.wanted is not None:
            order = order.index_select(0, inputs.wanted)
        return torch.cat(parts).index_select(0, order)

    def _states(self, inputs: Inputs, pool: KVPool, group: Group) -> Tensor:
        """Last hidden states [rows * new, hidden] of a group."""
        from .cache import PagedCache

        tokens = torch.from_numpy(group.tokens).to(self.device)
        mask = None
        if group.padding.any():
            is_real = np.arange(group.slots.shape[1]) >= group.padding[:, None]
            mask = torch.from_numpy(is_real.astype(np.int64)).to(self.device)
        cache = PagedCache(pool, self._layer_indices, group)
        states = self._decoder.cached(inputs.ids[tokens], inputs.positions[tokens], mask, cache)
        return states.flatten(0, 1)


def cached_layers_of(decoder: Decoder) -> tuple[Layers, tuple[int, ...]]:
    """Run a decoder without data once on an empty cache: what it caches, and which of its layers
    do. Raises InvalidModel if that is not keys and values of each token."""
    from .cache import TrialCache

    cache = TrialCache(decoder.num_layers)
    ids = torch.empty(1, NUM_TRIED, dtype=torch.int64, device="meta")
    try:
        with torch.inference_mode(), torch.device("meta"), _unchecked_distributions():
            states = decoder.cached(ids, ids, None, cache)
            logits = decoder.logits(states[0])
    except InvalidModel as error:
        raise InvalidModel(f"{decoder.name}: {error}") from error
    except Exception as error:  # foreign code may raise anything
        text = str(error).strip().partition("\n")[0][:200]
        raise InvalidModel(
            f"{decoder.name} of transformers cannot be tried without weights "
            f"({type(error).__name__}: {text})"
        ) from error
    found = sorted(cache.cached)
    if not found:
        raise InvalidModel(f"{decoder.name} takes no cache; expected keys and values in one")
    heads, dims = max(it.num_heads for it in found), max(it.dim for it in found)
    layers = Layers(heads, dims, (None,) * len(found), logits.shape[-1])
    return layers, tuple(it.layer for it in found)


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Switch off argument checks of torch's distributions, of which Gemma 3n uses a quantile."""
    kind = torch.distributions.Distribution
    before = kind._validate_args
    kind.set_default_validate_args(False)
    try:
        yield
    finally:
        kind.set_default_validate_args(before)
