"""The same proof with pictures: tower, splicing and rotary positions must give the logits of the
whole model's own forward pass."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...api.batch import Batch
from ...api.media import FEATURE, Kind, Media, MediaProcessor, MediaSpan, Pixels, rotary_parts
from ...api.protocol import InvalidModel
from ..inputs import Inputs
from .proof import compare, poisoned

_NUM_BEFORE, _NUM_AFTER = 4, 5  # tokens around a picture
_FEATURES = "features of pictures"
_SIZES: dict[Kind, tuple[int, int, int]] = {"image": (1, 60, 90), "video": (4, 64, 70)}


@torch.inference_mode()
def prove_pictures(
    model: Any, decoder: Any, attention: str, processor: MediaProcessor | None
) -> None:
    """Raise InvalidModel if a prompt with a picture, or with a clip, gets other logits than in
    transformers. attention: as in `prove`."""
    assert processor is not None
    for kind in sorted(processor.kinds):
        media = _noise(kind)
        pixels = processor.pixels(media)
        ids = _prompt(model.config.vocabulary_size, processor, pixels, kind)

        def both(
            kind: Kind = kind, ids: Any = ids, pixels: Pixels = pixels
        ) -> tuple[list[Tensor], list[Tensor]]:
            parts = _parts(processor, ids, kind, pixels)
            theirs = _theirs(
                model, decoder, attention, processor.placeholder(kind), ids, kind, pixels
            )
            return [_paged(model, ids, parts, pixels)], [theirs]

        compare(decoder.name, model.dtype, both)


@torch.inference_mode()
def prove_tower(tower: Any, whole: Any, processor: MediaProcessor) -> None:
    """Raise InvalidModel if units that go through a tower alone get other features than a whole
    picture, or a whole clip, in transformers."""
    for kind in sorted(processor.kinds):
        pixels = processor.pixels(_noise(kind))

        def both(kind: Kind = kind, pixels: Pixels = pixels) -> tuple[list[Tensor], list[Tensor]]:
            features = _by_unit(tower, pixels)
            arguments = tower.arguments(kind, pixels, torch.empty(0))
            own = getattr(whole.model, f"get_{kind}_features")
            taken = inspect.signature(own).parameters
            given = {name: it for name, it in arguments.items() if name in taken}
            found = own(**given, return_dict=True).pooler_output
            theirs = torch.cat([part.flatten(0, -2) for part in found])
            # Older versions add the end of a clip later than here.
            mine = features[:-1] if len(features) == len(theirs) + 1 else features
            return [mine], [theirs]

        compare(type(whole).__name__, whole.dtype, both, _FEATURES)


@torch.inference_mode()
def features_of(tower: Any, processor: MediaProcessor) -> list[Tensor]:
    """Those of a picture, and of a clip, whatever the tower takes of these."""
    return [_by_unit(tower, processor.pixels(_noise(kind))) for kind in sorted(processor.kinds)]


@torch.inference_mode()
def prove_features(tower: Any, whole: Any, processor: MediaProcessor, known: list[Tensor]) -> None:
    """Raise InvalidModel if a tower gives other features than those that are known."""
    name = type(whole).__name__
    compare(name, whole.dtype, lambda: (features_of(tower, processor), known), _FEATURES)


@torch.inference_mode()
def prove_positions(
    tower: Any, whole: Any, processor: MediaProcessor, vocabulary_size: int
) -> None:
    """Raise InvalidModel if the rotary positions of a prompt with a picture, or with a clip, are
    not those of transformers. Nothing for models whose positions count tokens."""
    own = getattr(whole.model, "get_rope_index", None)
    if own is None:
        return
    taken = inspect.signature(own).parameters
    for kind in sorted(processor.kinds):
        pixels = processor.pixels(_noise(kind))
        ids = _prompt(vocabulary_size, processor, pixels, kind)
        shown, types = _shown(ids, processor.placeholder(kind), kind, whole.device)
        arguments = {"input_ids": shown, **tower.arguments(kind, pixels, types)}
        theirs, _ = own(**{name: it for name, it in arguments.items() if name in taken})
        mine = _parts(processor, ids, kind, pixels)
        if mine is None or not np.array_equal(mine, theirs[:, 0].cpu().numpy()):
            name = type(whole).__name__
            raise InvalidModel(f"{name} has other rotary positions here than in transformers")


def _parts(processor: MediaProcessor, ids: Any, kind: Kind, pixels: Pixels) -> Any:
    """Rotary positions of `_prompt`."""
    start = _NUM_BEFORE + list(processor.wrapped(kind)).index(processor.placeholder(kind))
    return rotary_parts(len(ids), [start], [pixels.layout])


def _shown(ids: Any, token: int, kind: Kind, device: torch.device) -> tuple[Tensor, Tensor]:
    """[1, tokens] with this token for features, and which these are: 1 of a picture, 2 of a
    clip."""
    is_feature = ids == FEATURE
    shown = torch.from_numpy(np.where(is_feature, token, ids))[None].to(device)
    types = torch.from_numpy(is_feature * (2 if kind == "video" else 1))[None].to(device)
    return shown, types


def _by_unit(tower: Any, pixels: Pixels) -> Tensor:
    units = [range(i, i + 1) for i in range(len(pixels.layout.unit_costs))]
    features: Tensor = tower.features(
        pixels, [tower.encode([pixels], [unit])[0][0] for unit in units]
    )
    return features


def _noise(kind: Kind) -> Media:
    """A small picture or clip, of whole seconds: older versions cut them to these."""
    frames = np.random.default_rng(1).integers(0, 256, (*_SIZES[kind], 3), np.uint8)
    seconds = tuple(i * 1.0 for i in range(len(frames))) if kind == "video" else ()
    return Media.of(kind, frames, seconds)


def _prompt(size: int, processor: MediaProcessor, pixels: Pixels, kind: Kind) -> Any:
    """Some tokens, a picture as it stands in a prompt, and some more."""
    random, mine = np.random.default_rng(2), processor.placeholder(kind)
    others = {processor.placeholder(each) for each in processor.kinds}
    tokens = [token for token in range(min(10, size - 1), size) if token not in others][:5000]
    parts: list[Any] = [random.choice(tokens, _NUM_BEFORE)]
    parts += [pixels.layout.ids if token == mine else [token] for token in processor.wrapped(kind)]
    return np.concatenate([*parts, random.choice(tokens, _NUM_AFTER)]).astype(np.int64)


def _theirs(
    model: Any, decoder: Any, attention: str, token: int, ids: Any, kind: Kind, pixels: Pixels
) -> Tensor:
    shown, types = _shown(ids, token, kind, model.device)
    logits: Tensor = decoder.alone(shown, attention, **model.tower.arguments(kind, pixels, types))
    return logits


def _paged(model: Any, ids: Any, parts: Any, pixels: Pixels) -> Tensor:
    """Logits [tokens, vocabulary] of a prompt that is cut within its picture; each unit goes
    through the tower alone."""
    count, features = len(ids), _by_unit(model.tower, pixels)
    pool, attention = poisoned(model, count)
    table = np.random.default_rng(1).permutation(count).astype(np.int32)[None]
    where = np.flatnonzero(ids == FEATURE)
    logits: list[Tensor] = []
    middle = int(where[len(where) // 2])
    for start, end in ((0, middle), (middle, count)):
        inside = np.flatnonzero((where >= start) & (where < end))
        spans = tuple(
            MediaSpan(int(where[i]) - start, int(where[i]) - start + 1, b"", int(i)) for i in inside
        )
        positions = np.arange(start, end)
        batch = Batch(
            ids=ids[start:end],
            positions=positions,
            slots=table[0, start:end],
            rows=np.zeros(1, np.int32),
            starts=np.array([start], np.int32),
            lens=np.array([end - start], np.int32),
            table=table,
            sampled=np.arange(end - start, dtype=np.int32),
            sampling_params=(),
            media=spans,
            parts=None if parts is None else parts[:, start:end],
        )
        given = [features[torch.from_numpy(inside).to(features.device)]]
        inputs = Inputs.of(batch, model.windows, attention, model.device, features=given)
        logits.append(model.logits(model.hidden(inputs, pool, attention)))
    return torch.cat(logits)
