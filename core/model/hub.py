"""Any other decoder of transformers, by its own modelling code, on our paged KV.

What it is and whether it can be run is found by running it without data; what it is worth is
proved on a few tokens once it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...kernels import Attention
from ..protocol import InvalidModel
from .batch import Ints
from .config import check_special_tokens, read_special_tokens
from .hub_attention import PagedSeat, seated
from .hub_decoder import Decoder
from .hub_library import (
    build,
    class_of,
    computes_itself,
    context_len,
    eos_ids,
    is_length_assumed,
    load_weights,
    quiet,
    read_config,
    settle_rope,
    stored_dtype,
    ways_to_ask,
)
from .hub_proof import prove
from .hub_trial import Layers, layers_of
from .inputs import Inputs
from .keys import Keys
from .pool import KVPool
from .sizes import Sizes
from .weights import opened, weight_files


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig(Sizes):
    """The sizes of one decoder of transformers. windows: of each layer, as in `ModelConfig`.
    is_caught: its code calls torch's attention function, see `hub_attention`."""

    parameter_count: int
    windows: tuple[int | None, ...]
    is_caught: bool

    @property
    def path(self) -> str:
        """As `Sizes.path`."""
        return "transformers' model code on forkroot's paged KV"

    def num_parameters(self) -> int:
        """As `Sizes.num_parameters`."""
        return self.parameter_count


class HubModel:
    """The `Model` of a decoder of transformers."""

    def __init__(self, decoder: Decoder, config: HubConfig) -> None:
        self.config = config
        self.windows = tuple(dict.fromkeys(config.windows))
        self._places = tuple(self.windows.index(window) for window in config.windows)
        self._decoder = decoder
        self._mask = torch.zeros(1, 1, 1, 1, dtype=decoder.dtype, device=self.device)

    @property
    def dtype(self) -> torch.dtype:
        """As `Model.dtype`."""
        return self._decoder.dtype

    @property
    def device(self) -> torch.device:
        """As `Model.device`."""
        device: torch.device = self._decoder.whole.device
        return device

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """As `Model.hidden`."""
        is_caught = self.config.is_caught
        seat = PagedSeat(inputs, pool, attention, self._places)
        with seated(seat, is_caught):
            mask = self._mask if is_caught else None
            states = self._decoder.states(inputs.ids[None], inputs.positions[None], mask)
        return states if inputs.wanted is None else states.index_select(0, inputs.wanted)

    def logits(self, hidden: Tensor, allowed: Ints | None = None) -> Tensor:
        """As `Model.logits`, of all tokens."""
        return self._decoder.logits(hidden).float()


def describe(folder: str | Path) -> HubConfig:
    """The sizes of a checkpoint, found by running its code on tensors without data. Raises
    InvalidModel for what cannot be run on paged KV."""
    keys = Keys.read(Path(folder) / "config.json")
    config, kind = read_config(keys), class_of(keys)
    length, dtype = context_len(config), stored_dtype(config)
    settle_rope(config, length)
    with quiet():
        decoder, layers, caught = _tried(kind, config)
    bos_id, ends = read_special_tokens(keys)
    sizes = HubConfig(
        architecture=decoder.name,
        vocabulary_size=layers.vocabulary_size,
        num_layers=len(layers.windows),
        num_kv_heads=layers.num_kv_heads,
        head_dim=layers.head_dim,
        context_len=length,
        is_length_assumed=is_length_assumed(config),
        dtype=dtype,
        bos_id=bos_id,
        eos_ids=ends or eos_ids(config),
        parameter_count=sum(p.numel() for p in decoder.whole.parameters()),
        windows=layers.windows,
        is_caught=caught,
    )
    check_special_tokens(keys, sizes)
    return sizes


def _tried(kind: Any, config: Any) -> tuple[Decoder, Layers, bool]:
    """A decoder without data, its layers, and whether its calls of attention are caught: the first
    way in which it can be run. Raises InvalidModel, of the last way."""
    fault = computes_itself(kind)
    for caught in ways_to_ask(kind):
        try:
            decoder = Decoder(build(kind, config, caught))
            layers = layers_of(decoder, caught)
        except InvalidModel as error:
            fault = error
        else:
            if layers is not None:
                return decoder, layers, caught
    raise fault


def load(
    folder: str | Path, sizes: HubConfig, dtype: torch.dtype, device: torch.device
) -> HubModel:
    """Load a checkpoint whole and prove it on a few tokens, or raise InvalidModel."""
    keys = Keys.read(Path(folder) / "config.json")
    for path in weight_files(folder):
        with opened(path):
            pass
    config, kind = read_config(keys), class_of(keys)
    settle_rope(config, sizes.context_len)
    with quiet():
        whole = load_weights(kind, config, Path(folder), dtype, sizes.is_caught)
        decoder = Decoder(whole.to(device))
        model = HubModel(decoder, sizes)
        prove(model, decoder, "sdpa" if sizes.is_caught else "eager")
    return model
