"""Any other decoder of transformers, by its own modelling code, on our paged KV.

What it is and whether it can be run is found by running it without data; what it is worth is
proved on a few tokens once it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....kernels.interface import Attention
from ...api.media import Kind, MediaProcessor
from ...api.protocol import InvalidModel
from ..config import ASSUMED_LEN, check_special_tokens, read_special_tokens
from ..inputs import Inputs
from ..keys import Keys
from ..pool import KVPool
from ..sizes import Sizes
from ..vision import load as load_processor
from ..vision.families import LOOKING_AHEAD
from ..weights import opened, weight_files
from .attention import NAME, TRIAL, attend_paged, handling_attention
from .cached import CachedModel, cached_layers_of
from .decoder import Decoder, DecoderModel
from .library import (
    attention_paths,
    build,
    class_of,
    eos_ids,
    load_weights,
    own_attention,
    picture_numbers,
    quiet,
    read_config,
    settle_rope,
    stated_context_len,
    stored_dtype,
    without_layers,
)
from .packed import pack_tower
from .picture_proof import features_of, prove_features, prove_pictures, prove_positions, prove_tower
from .proof import prove
from .towers import tower_of
from .trial import Layers, NotCausal, layers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig(Sizes):
    """The sizes of one decoder of transformers.

    windows: of each layer, as in `ModelConfig`.
    intercepts_sdpa: its code calls torch's attention function, see `attention`.
    kinds: of pictures that it takes.
    cached_layers: the layers that cache, where the attention is the model's own; else ().
    """

    parameter_count: int
    windows: tuple[int | None, ...]
    intercepts_sdpa: bool = False
    cached_layers: tuple[int, ...] = ()
    kinds: tuple[Kind, ...] = ()

    @property
    def path(self) -> str:
        """As `Sizes.path`."""
        if self.cached_layers:
            return "transformers' model code and attention (slower) on forkroot's paged KV"
        text = "transformers' model code on forkroot's paged KV"
        takes = " and ".join(f"{kind}s" for kind in self.kinds)
        if self.architecture in LOOKING_AHEAD:
            return f"{text}, without images (their tokens see those after them)"
        return f"{text}, with {takes} by its own tower" if takes else text

    def num_parameters(self) -> int:
        """As `Sizes.num_parameters`."""
        return self.parameter_count


class HubModel(DecoderModel):
    """The `Model` of a decoder of transformers."""

    def __init__(self, decoder: Decoder, config: HubConfig) -> None:
        super().__init__(decoder)
        self.config = config
        self.windows = tuple(dict.fromkeys(config.windows))
        self._window_indices = tuple(self.windows.index(window) for window in config.windows)
        self.tower: Any = tower_of(decoder.whole) if config.kinds else None
        self._mask = torch.zeros(1, 1, 1, 1, dtype=decoder.dtype, device=self.device)

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """As `Model.hidden`."""
        intercepts_sdpa = self.config.intercepts_sdpa
        handler = partial(attend_paged, inputs, pool, attention, self._window_indices)
        with handling_attention(handler, intercepts_sdpa):
            mask = self._mask if intercepts_sdpa else None
            positions = inputs.positions[None] if inputs.parts is None else inputs.parts[:, None]
            states = self._decoder.states(inputs.ids[None], positions, mask, inputs.spliced)
        return states if inputs.wanted is None else states.index_select(0, inputs.wanted)


def describe(folder: str | Path) -> HubConfig:
    """The sizes of a checkpoint, found by running its code on tensors without data. Raises
    InvalidModel for what cannot be run on paged KV."""
    keys = Keys.read(Path(folder) / "config.json")
    config, kind = read_config(keys), class_of(keys)
    stated, dtype = stated_context_len(config), stored_dtype(config)
    length = stated or ASSUMED_LEN
    settle_rope(config, length)
    with quiet():
        decoder, layers, intercepts_sdpa, cached = _trial(kind, config)
    bos_id, ends = read_special_tokens(keys)
    if bos_id is None and "text_config" in keys.values:
        bos_id = read_special_tokens(keys.section("text_config"))[0]
    processor = load_processor(folder)
    if processor is not None and cached:
        own = "has an attention of its own; expected none beside a tower"
        raise InvalidModel(f"{decoder.name} {own}")
    sizes = HubConfig(
        architecture=decoder.name,
        vocabulary_size=layers.vocabulary_size,
        num_layers=len(layers.windows),
        num_kv_heads=layers.num_kv_heads,
        head_dim=layers.head_dim,
        context_len=length,
        is_length_assumed=not stated,
        dtype=dtype,
        bos_id=bos_id,
        eos_ids=ends or eos_ids(config),
        parameter_count=sum(p.numel() for p in decoder.whole.parameters()),
        windows=layers.windows,
        intercepts_sdpa=intercepts_sdpa,
        cached_layers=cached,
        kinds=() if processor is None else tuple(sorted(processor.kinds)),
        **({} if processor is None else picture_numbers(config)),
    )
    check_special_tokens(keys, sizes)
    return sizes


def _trial(kind: Any, config: Any) -> tuple[Decoder, Layers, bool, tuple[int, ...]]:
    """The first way in which a class can be run: with our attention, and whether torch's function
    is intercepted, or with its own and a cache, and the layers that cache. Raises InvalidModel, of
    the last way."""
    for intercepts_sdpa in attention_paths(kind, config):
        try:
            decoder = Decoder(build(kind, config, "sdpa" if intercepts_sdpa else TRIAL))
            decoder.check_positions()
            layers = layers_of(decoder, intercepts_sdpa)
        except NotCausal:
            raise
        except InvalidModel:
            continue
        if layers is not None:
            return decoder, layers, intercepts_sdpa, ()
    decoder = Decoder(build(kind, config, "eager"))  # masks of others look at data
    layers, cached = cached_layers_of(decoder)
    return decoder, layers, False, cached


def load(
    folder: str | Path, sizes: HubConfig, dtype: torch.dtype, device: torch.device
) -> HubModel | CachedModel:
    """Load a checkpoint whole and prove it on a few tokens, or raise InvalidModel."""
    keys = Keys.read(Path(folder) / "config.json")
    for path in weight_files(folder):
        with opened(path):
            pass
    config, kind = read_config(keys), class_of(keys)
    settle_rope(config, sizes.context_len)
    own = own_attention(kind)
    attention = own if sizes.cached_layers else "sdpa" if sizes.intercepts_sdpa else NAME
    with quiet():
        decoder = Decoder(load_weights(kind, config, Path(folder), dtype, attention).to(device))
        if sizes.cached_layers:
            return _verified(CachedModel(decoder, sizes, sizes.cached_layers), decoder, own)
        model = HubModel(decoder, sizes)
        shown = "sdpa" if sizes.intercepts_sdpa else "eager"
        prove(model, decoder, shown)
        if model.tower is not None:
            processor = load_processor(folder)
            prove_pictures(model, decoder, shown, processor)
            _pack(model.tower, decoder.whole, processor)
    return model


def load_tower(folder: str | Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The tower of a checkpoint alone, as `Tower`, proved on a picture and a clip. Raises
    InvalidModel."""
    keys = Keys.read(Path(folder) / "config.json")
    config, kind = without_layers(read_config(keys)), class_of(keys)
    processor = load_processor(folder)
    assert processor is not None
    with quiet():
        layers = "model.language_model.layers."
        whole = load_weights(kind, config, Path(folder), dtype, "sdpa", ignored=layers).to(device)
        whole.model.language_model = torch.nn.Identity()  # our code has its own
        tower = tower_of(whole)
        prove_tower(tower, whole, processor)
        prove_positions(tower, whole, processor, config.get_text_config().vocab_size)
        _pack(tower, whole, processor)
    return tower


def _pack(tower: Any, whole: Any, processor: MediaProcessor | None) -> None:
    """Let a tower that is proved multiply faster, where this machine can, and prove it again."""
    assert processor is not None
    before = features_of(tower, processor)
    if pack_tower(whole):
        prove_features(tower, whole, processor, before)


def _verified(model: CachedModel, decoder: Decoder, attention: str) -> CachedModel:
    """With rows padded to one length if the model gives the same logits then, else without."""
    try:
        prove(model, decoder, attention)
    except InvalidModel:
        model.can_pad = False
        prove(model, decoder, attention)
    return model
