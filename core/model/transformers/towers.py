"""Towers and projectors of transformers' models: pixels to features, one tile or frame at a time.

Each runs the modules of the loaded model; only the loop over pictures is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...api.media import Kind, Pixels

Arguments = dict[str, Any]


class TileTower:
    """The towers of LLaVA-1.5, LLaVA-NeXT and OneVision. whole: the model of transformers."""

    def __init__(self, whole: Any) -> None:
        self._model = whole.model
        self._config = whole.config

    def encode(self, pixels: Sequence[Pixels], units: Sequence[range]) -> list[list[Tensor]]:
        """As `Tower.encode`."""
        tiles = [
            it.arrays["tiles"][span.start : span.stop]
            for it, span in zip(pixels, units, strict=True)
        ]
        seen = self._seen(np.concatenate(tiles))
        parts = seen.split([len(it) for it in tiles])
        return [list(self._projected(it, part)) for it, part in zip(pixels, parts, strict=True)]

    def features(self, pixels: Pixels, units: Sequence[Tensor]) -> Tensor:
        """As `Tower.features`."""
        return torch.cat(list(units))

    def arguments(self, kind: Kind, pixels: Pixels, types: Tensor) -> Arguments:
        """What the whole model takes in its forward pass for one picture. types: [1, tokens] 1 at
        features of a picture, 2 of a clip, else 0."""
        return {"pixel_values": self._tensor(pixels.arrays["tiles"])}

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._model.device, self._model.dtype)

    def _seen(self, tiles: np.ndarray) -> Tensor:
        """[tiles, features, width] the chosen hidden states of the tower."""
        out = self._model.vision_tower(
            self._tensor(tiles), output_hidden_states=True, return_dict=True
        )
        chosen = self._config.vision_feature_layer
        layers = [chosen] if isinstance(chosen, int) else chosen
        states = torch.cat([out.hidden_states[layer] for layer in layers], dim=-1)
        has_class = self._config.vision_feature_select_strategy == "default"
        return states[:, 1:] if has_class else states

    def _projected(self, pixels: Pixels, seen: Tensor) -> Tensor:
        """Features of a picture's tiles, [tiles, features, hidden]."""
        projected: Tensor = self._model.multi_modal_projector(seen)
        return projected


class NextTower(TileTower):
    """Of LLaVA-NeXT and LLaVA-NeXT-Video: tiles of a picture are joined row by row."""

    def features(self, pixels: Pixels, units: Sequence[Tensor]) -> Tensor:
        """As `Tower.features`."""
        if _kind(pixels) == "video":
            return torch.cat(list(units))
        return self._packed(torch.stack(list(units)), pixels.arrays["size"].tolist())

    def arguments(self, kind: Kind, pixels: Pixels, types: Tensor) -> Arguments:
        """As in TileTower."""
        tiles = self._tensor(pixels.arrays["tiles"])[None]
        if kind == "video":
            return {"pixel_values_videos": tiles}
        sizes = torch.from_numpy(pixels.arrays["size"])[None]
        return {"pixel_values": tiles, "image_sizes": sizes}

    def _packed(self, tiles: Tensor, size: list[int]) -> Tensor:
        strategy, newline = self._config.vision_feature_select_strategy, self._model.image_newline
        packed: Tensor = self._model.pack_image_features([tiles], [size], strategy, newline)[0][0]
        return packed

    def _projected(self, pixels: Pixels, seen: Tensor) -> Tensor:
        if _kind(pixels) == "video":
            seen = self._model.vision_resampler(seen)
        return super()._projected(pixels, seen)


class OnevisionTower(NextTower):
    """Of LLaVA-OneVision."""

    def features(self, pixels: Pixels, units: Sequence[Tensor]) -> Tensor:
        """As `Tower.features`."""
        found = super().features(pixels, units)
        if _kind(pixels) == "image":
            return found
        return torch.cat([found, self._model.image_newline[None].to(found)])

    def _packed(self, tiles: Tensor, size: list[int]) -> Tensor:
        aspect, newline = self._config.vision_aspect_ratio, self._model.image_newline
        packed: Tensor = self._model.pack_image_features([tiles], [size], newline, aspect)[0][0]
        return packed

    def _projected(self, pixels: Pixels, seen: Tensor) -> Tensor:
        projected = TileTower._projected(self, pixels, seen)
        if _kind(pixels) == "video":
            pooled: Tensor = self._model.apply_pooling(projected)
            return pooled
        return projected


class QwenTower:
    """Of Qwen2-VL, Qwen2.5-VL and Qwen3-VL. Features of the last have those of early layers behind
    them."""

    def __init__(self, whole: Any) -> None:
        self._model = whole.model

    def encode(self, pixels: Sequence[Pixels], units: Sequence[range]) -> list[list[Tensor]]:
        """As `Tower.encode`."""
        patches, grids = [], []
        for it, span in zip(pixels, units, strict=True):
            _, rows, columns = it.arrays["grid"].tolist()
            area = rows * columns
            patches.append(it.arrays["patches"][span.start * area : span.stop * area])
            grids += [[1, rows, columns]] * len(span)
        parts = iter(self._features(np.concatenate(patches), np.array(grids)))
        return [[next(parts) for _ in span] for span in units]

    def features(self, pixels: Pixels, units: Sequence[Tensor]) -> Tensor:
        """As `Tower.features`."""
        return torch.cat(list(units))

    def arguments(self, kind: Kind, pixels: Pixels, types: Tensor) -> Arguments:
        """As in TileTower."""
        names = ("pixel_values", "image_grid_thw")
        names = ("pixel_values_videos", "video_grid_thw") if kind == "video" else names
        grid = torch.from_numpy(pixels.arrays["grid"])[None].to(self._model.device)
        patches = self._tensor(pixels.arrays["patches"])
        extra = {
            name: torch.from_numpy(pixels.arrays[name])
            for name in ("second_per_grid_ts",)
            if name in pixels.arrays
        }
        return {names[0]: patches, names[1]: grid, "mm_token_type_ids": types, **extra}

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._model.device, self._model.dtype)

    def _features(self, patches: np.ndarray, grids: np.ndarray) -> Sequence[Tensor]:
        """Of each grid."""
        grid = torch.from_numpy(grids).to(self._model.device)
        out = self._model.get_image_features(self._tensor(patches), grid, return_dict=True)
        lens = [len(part) for part in out.pooler_output]
        layers = [torch.cat(list(out.pooler_output))]
        layers += [_joined(part) for part in getattr(out, "deepstack_features", None) or ()]
        parts: Sequence[Tensor] = torch.cat(layers, dim=-1).split(lens)
        return parts


def _joined(part: Tensor | Sequence[Tensor]) -> Tensor:
    return part if isinstance(part, Tensor) else torch.cat(list(part))


def _kind(pixels: Pixels) -> Kind:
    return "video" if pixels.arrays["is_clip"] else "image"


_TOWERS: Mapping[str, Any] = {
    "LlavaForConditionalGeneration": TileTower,
    "LlavaNextForConditionalGeneration": NextTower,
    "LlavaNextVideoForConditionalGeneration": NextTower,
    "LlavaOnevisionForConditionalGeneration": OnevisionTower,
    "Qwen2VLForConditionalGeneration": QwenTower,
    "Qwen2_5_VLForConditionalGeneration": QwenTower,
    "Qwen3VLForConditionalGeneration": QwenTower,
}


def tower_of(whole: Any) -> Any:
    """The tower of a model of `FAMILIES`; None for others."""
    kind = _TOWERS.get(type(whole).__name__)
    return None if kind is None else kind(whole)
