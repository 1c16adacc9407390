"""Prompts with pictures, placed in slots as the engine would place them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from forkroot.core.api.batch import Batch
from forkroot.core.api.media import (
    FEATURE,
    Encode,
    Media,
    MediaProcessor,
    MediaSpan,
    Pixels,
    media_keys,
    rotary_parts,
)

from ..conftest import Placement
from . import tiny


@dataclass
class Prompt:
    """A prompt of tokens and pictures. ids: with keys where features go. features: [n] digest and
    index of the feature at each id; None: a token. parts: [3, n] rotary positions."""

    ids: list[int]
    features: list[tuple[bytes, int] | None]
    parts: np.ndarray | None
    media: list[Media]
    pixels: list[Pixels]

    @classmethod
    def of(cls, processor: MediaProcessor, pieces: Sequence[list[int] | Media]) -> Prompt:
        ids: list[int] = []
        starts: list[int] = []
        features: list[tuple[bytes, int] | None] = []
        media = [piece for piece in pieces if isinstance(piece, Media)]
        for piece in pieces:
            if not isinstance(piece, Media):
                ids += piece
                features += [None] * len(piece)
                continue
            layout = processor.layout(piece)
            keys = iter(media_keys(piece.digest, processor.settings, layout.num_features, 200))
            indices = iter(range(layout.num_features))
            for token in processor.wrapped(piece.kind):
                is_placeholder = token == processor.placeholder(piece.kind)
                starts += [len(ids)] if is_placeholder else []
                for it in layout.ids.tolist() if is_placeholder else [token]:
                    ids.append(int(next(keys)) if it == FEATURE else it)
                    features.append((piece.digest, next(indices)) if it == FEATURE else None)
        layouts = [processor.layout(it) for it in media]
        parts = rotary_parts(len(ids), starts, layouts)
        return cls(ids, features, parts, media, [processor.pixels(it) for it in media])

    @property
    def encodes(self) -> tuple[Encode, ...]:
        """All units of its pictures."""
        return tuple(
            Encode(media.digest, pixels, range(len(pixels.layout.unit_costs)))
            for media, pixels in zip(self.media, self.pixels, strict=True)
        )

    def spans(self, start: int, end: int, at: int) -> list[MediaSpan]:
        """Of the ids start:end, which stand at `at` in a batch."""
        found: list[MediaSpan] = []
        for i, feature in enumerate(self.features[start:end], at):
            if feature is None:
                continue
            digest, index = feature
            last = found[-1] if found else None
            if last and last.end == i and last.digest == digest:
                found[-1] = replace(last, end=i + 1)
            else:
                found.append(MediaSpan(i, i + 1, digest, index))
        return found

    def part(self, position: int) -> list[int]:
        """Rotary positions of the id at a position, behind its end too."""
        if self.parts is None:
            return [position] * 3
        if position < len(self.ids):
            return list(self.parts[:, position])
        return [int(self.parts.max()) + 1 + position - len(self.ids)] * 3


def with_media(batch: Batch, prompts: Sequence[Prompt], **fields: Any) -> Batch:
    """A batch of a `Placement` whose sequences are these prompts, with what it says of pictures."""
    spans: list[MediaSpan] = []
    parts: list[list[int]] = []
    at = 0
    for prompt, start, count in zip(prompts, batch.starts, batch.lens, strict=True):
        end = min(start + count, len(prompt.ids))
        spans += prompt.spans(start, end, at) if start < end else []
        parts += [prompt.part(position) for position in range(start, start + count)]
        at += count
    numbers = np.array(parts, np.int64).T
    needs = any(prompt.parts is not None for prompt in prompts)
    return replace(batch, media=tuple(spans), parts=numbers if needs else None, **fields)


def arguments_of(kind: str, prompt: Prompt) -> dict[str, Any]:
    """What the whole model of transformers takes for a prompt."""
    ids = np.array(prompt.ids)
    types = np.zeros(len(ids), np.int64)
    kinds = {media.digest: media.kind for media in prompt.media}
    for i, feature in enumerate(prompt.features):
        if feature is not None:
            is_clip = kinds[feature[0]] == "video"
            ids[i], types[i] = (tiny.VIDEO, 2) if is_clip else (tiny.IMAGE, 1)
    found: dict[str, Any] = {"input_ids": torch.from_numpy(ids)[None]}
    for name in ("image", "video"):
        pairs = zip(prompt.media, prompt.pixels, strict=True)
        arrays = [pixels.arrays for media, pixels in pairs if media.kind == name]
        if arrays:
            found |= _of_kind(kind, name, arrays)
    if kind.startswith("qwen"):
        found["mm_token_type_ids"] = torch.from_numpy(types)[None]
    return found


def _of_kind(kind: str, name: str, arrays: list[Any]) -> dict[str, Any]:
    values = "pixel_values" if name == "image" else "pixel_values_videos"
    if kind.startswith("qwen"):
        found = {
            values: torch.cat([torch.from_numpy(it["patches"]) for it in arrays]),
            f"{name}_grid_thw": torch.stack([torch.from_numpy(it["grid"]) for it in arrays]),
        }
        seconds = [it["second_per_grid_ts"] for it in arrays if "second_per_grid_ts" in it]
        return (
            {**found, "second_per_grid_ts": torch.tensor(np.concatenate(seconds))}
            if (seconds)
            else found
        )
    tiles = [torch.from_numpy(it["tiles"]) for it in arrays]
    if kind == "llava":
        return {values: torch.cat(tiles)}
    padded = torch.nn.utils.rnn.pad_sequence(tiles, batch_first=True)
    sizes = torch.stack([torch.from_numpy(it["size"]) for it in arrays])
    return {values: padded, **({"image_sizes": sizes} if name == "image" else {})}


def placed(prompts: Sequence[Prompt], seed: int = 0) -> Placement:
    """These prompts as sequences of which nothing is computed."""
    placement = Placement(seed, context_len=1024)
    for prompt in prompts:
        placement.add(prompt.ids)
    return placement
