"""The same proof with pictures: tower, splicing and rotary positions must give the logits of the
whole model's own forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...api.batch import Batch
from ...api.media import FEATURE, Kind, Media, MediaProcessor, MediaSpan, Pixels
from ..inputs import Inputs
from .proof import compare, poisoned

_NUM_BEFORE, _NUM_AFTER = 4, 5  # tokens around a picture
_SIZES: dict[Kind, tuple[int, int, int]] = {"image": (1, 60, 90), "video": (4, 64, 70)}
_KEY = 2**31 - 1  # outside of any vocabulary


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
            keys = np.where(ids == FEATURE, _KEY, ids).astype(np.int32)
            parts = processor.positions(keys, [pixels.layout])
            theirs = _theirs(
                model, decoder, attention, processor.placeholder(kind), ids, kind, pixels
            )
            return [_paged(model, ids, parts, pixels)], [theirs]

        compare(model, decoder, both)


def _noise(kind: Kind) -> Media:
    frames = np.random.default_rng(1).integers(0, 256, (*_SIZES[kind], 3), np.uint8)
    seconds = tuple(i * 0.7 for i in range(len(frames))) if kind == "video" else ()
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
    is_feature = ids == FEATURE
    shown = torch.from_numpy(np.where(is_feature, token, ids))[None].to(model.device)
    types = torch.from_numpy(is_feature * (2 if kind == "video" else 1))[None].to(model.device)
    logits: Tensor = decoder.alone(shown, attention, **model.tower.arguments(kind, pixels, types))
    return logits


def _paged(model: Any, ids: Any, parts: Any, pixels: Pixels) -> Tensor:
    """Logits [tokens, vocabulary] of a prompt that is cut within its picture; each unit goes
    through the tower alone."""
    count, tower = len(ids), model.tower
    units = [range(i, i + 1) for i in range(len(pixels.layout.unit_costs))]
    features = tower.features(pixels, [tower.encode([pixels], [unit])[0][0] for unit in units])
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
