"""Pictures and clips of the LLaVA family: tiles of one size, each seen by the tower alone.

LLaVA-1.5 (arXiv:2310.03744) makes one tile of a picture, LLaVA-NeXT and OneVision
(arXiv:2408.03326) a small one of all of it and a grid of tiles at a higher resolution. Frames of
clips are tiles whose features are pooled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...api.media import FEATURE, Kind, Layout, Media, Pixels
from .base import Processor, Settings, refuse, token_id
from .prepare import CLIP, HALVES, Preparation, Size, check_shape, resized

_CROPPED = {
    **CLIP,
    "size": {"shortest_edge": 224},
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
}
_SQUARE = {**HALVES, "size": {"height": 224, "width": 224}}
_TYPES: dict[str, dict[str, Any]] = {
    "CLIPImageProcessor": _CROPPED,
    "LlavaImageProcessor": _CROPPED,
    "LlavaNextImageProcessor": _CROPPED,
    "LlavaNextVideoImageProcessor": _CROPPED,
    "LlavaNextVideoVideoProcessor": _CROPPED,
    "SiglipImageProcessor": _SQUARE,
    "LlavaOnevisionImageProcessor": {**CLIP, "size": {"height": 384, "width": 384}},
    "LlavaOnevisionVideoProcessor": {**CLIP, "size": {"height": 384, "width": 384}},
}
_NUM_CLASS_TOKENS = {"clip_vision_model": 1, "siglip_vision_model": 0}  # towers of one tile size
_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
_MOST_PINPOINTS = 256


@dataclass(frozen=True, slots=True)
class Tower:
    """Sizes of a tower. tile_size: edge of its pictures. grid: patches of an edge. num_features: of
    a tile. cost: tokens of a tile."""

    tile_size: int
    grid: int
    num_features: int
    cost: int

    @classmethod
    def read(cls, settings: Settings, kind: str, tile_size: int, strategy: str) -> Tower:
        """The defaults are those of the family's configuration. Raises InvalidModel."""
        vision = settings.vision
        kind = vision.word("model_type", kind)
        if kind not in _NUM_CLASS_TOKENS:
            raise refuse(settings, f"has a tower {kind}", ", ".join(_NUM_CLASS_TOKENS))
        tile_size = vision.count("image_size", tile_size)
        grid = tile_size // vision.count("patch_size", 14)
        strategy = settings.config.word("vision_feature_select_strategy", strategy)
        cost = grid**2 + _NUM_CLASS_TOKENS[kind]
        return cls(tile_size, grid, cost - (strategy == "default"), cost)


class Llava(Processor):
    """LLaVA-1.5: one tile."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _placeholders(settings))
        self._tower = Tower.read(settings, "clip_vision_model", 336, "default")
        self._prepared = _preparation(settings, "image", self._tower)

    def layout(self, media: Media) -> Layout:
        """As `MediaProcessor.layout`."""
        check_shape(media)
        return _layout(self._tower.num_features, 1, self._tower.cost)

    def pixels(self, media: Media) -> Pixels:
        """As `MediaProcessor.pixels`."""
        return _of_frames(self._prepared, media, self.layout(media))


class _Tiled(Processor):
    """Pictures as a base tile and a grid of others, clips as frames.

    pinpoints: sizes of grids in pixels. most_tiles: features of a grid are shrunk to so many times
    those of a tile; None: never. frame_grid: rows and columns of features of a frame. num_ends:
    features behind a clip.
    """

    def __init__(self, settings: Settings, tower: Tower) -> None:
        super().__init__(settings, _placeholders(settings))
        if tower.num_features != tower.grid**2:
            what = f"has {tower.num_features} features a tile"
            raise refuse(settings, what, f"{tower.grid} x {tower.grid}")
        self._tower = tower
        self._prepared = {
            kind: _preparation(settings, kind, tower) for kind in settings.preparations
        }
        self._pinpoints = _pinpoints(settings, tower)
        self._most_tiles: int | None = None
        self._frame_grid = self._num_ends = 0

    def layout(self, media: Media) -> Layout:
        """As `MediaProcessor.layout`."""
        height, width = check_shape(media)
        cost = self._tower.cost
        if media.kind == "video":
            num_frames = len(media.frames)
            return _layout(num_frames * self._frame_grid**2 + self._num_ends, num_frames, cost)
        rows, columns = self._grid(height, width)
        num_features = self._tower.num_features + self._num_grid_features(height, width)
        return _layout(num_features, 1 + rows * columns, cost)

    def pixels(self, media: Media) -> Pixels:
        """As `MediaProcessor.pixels`."""
        layout, prepared = self.layout(media), self._prepared[media.kind]
        if media.kind == "video":
            return _of_frames(prepared, media, layout)
        frame, side = media.frames[0], self._tower.tile_size
        rows, columns = self._grid(*frame.shape[:2])
        tiles = [resized(frame, (side, side), prepared.resample)]
        large = _letterboxed(frame, (rows * side, columns * side), prepared.resample)
        grid = large.reshape(rows, side, columns, side, 3).swapaxes(1, 2)
        tiles += list(grid.reshape(-1, side, side, 3))
        arrays = {
            "tiles": prepared.normalised(np.stack(tiles)).transpose(0, 3, 1, 2),
            "size": np.array(frame.shape[:2]),
            "is_clip": np.array(False),
        }
        return Pixels(arrays, layout)

    def _grid(self, height: int, width: int) -> Size:
        """Rows and columns of the grid: the size that keeps the most pixels and wastes the least
        (section 3.1 of the OneVision paper)."""

        def kept_and_waste(size: Size) -> tuple[int, int]:
            scale = min(size[1] / width, size[0] / height)
            kept = min(int(width * scale) * int(height * scale), height * width)
            return kept, kept - size[0] * size[1]

        side = self._tower.tile_size
        best = max(self._pinpoints, key=kept_and_waste)
        return best[0] // side, best[1] // side

    def _num_grid_features(self, height: int, width: int) -> int:
        """Features of the grid without what only pads it, with one more behind each row."""
        grid = self._tower.grid
        rows, columns = (count * grid for count in self._grid(height, width))
        if width / height > columns / rows:
            inner = int(round(height * (columns / width), 7))
            rows -= (rows - inner) // 2 * 2
        else:
            inner = int(round(width * (rows / height), 7))
            columns -= (columns - inner) // 2 * 2
        if self._most_tiles is not None:
            ratio = math.sqrt(rows * columns / (self._most_tiles * grid**2))
            if ratio > 1.1:
                rows, columns = int(rows // ratio), int(columns // ratio)
        return rows * (columns + 1)


class LlavaNext(_Tiled):
    """LLaVA-NeXT, and LLaVA-NeXT-Video."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Tower.read(settings, "clip_vision_model", 336, "default"))
        self._frame_grid = self._tower.grid // settings.config.count("spatial_pool_stride", 2)


class LlavaOnevision(_Tiled):
    """LLaVA-OneVision."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, Tower.read(settings, "siglip_vision_model", 384, "full"))
        aspect = settings.config.word("vision_aspect_ratio", "anyres_max_9")
        most = aspect.removeprefix("anyres_max_")
        if not most.isdecimal() or not 0 < int(most) < 1000:
            raise settings.config.refuse("vision_aspect_ratio", "anyres_max_ and a number")
        self._most_tiles, self._num_ends = int(most), 1
        self._frame_grid = -(-self._tower.grid // 2)


def _layout(num_features: int, num_units: int, cost: int) -> Layout:
    return Layout(np.full(num_features, FEATURE, np.int32), (cost,) * num_units)


def _of_frames(prepared: Preparation, media: Media, layout: Layout) -> Pixels:
    tiles = np.stack([prepared.tile(frame) for frame in media.frames])
    arrays = {"tiles": tiles, "size": np.array(media.frames.shape[1:3])}
    return Pixels({**arrays, "is_clip": np.array(media.kind == "video")}, layout)


def _letterboxed(frame: Any, size: Size, resample: int) -> Any:
    """A frame as large as a size allows, with black around it."""
    height, width = frame.shape[:2]
    by_height, by_width = size[0] / height, size[1] / width
    if by_width < by_height:
        inner = min(math.ceil(height * by_width), size[0]), size[1]
    else:
        inner = size[0], min(math.ceil(width * by_height), size[1])
    top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    out = np.zeros((*size, 3), np.uint8)
    out[top : top + inner[0], left : left + inner[1]] = resized(frame, inner, resample)
    return out


def _placeholders(settings: Settings) -> dict[Kind, int]:
    video_first = settings.name == "LlavaNextVideoForConditionalGeneration"
    onevision = settings.name == "LlavaOnevisionForConditionalGeneration"
    image, video = (32001, 32000) if video_first else (151646, 151647) if onevision else (32000, 0)
    config = settings.config
    return {"image": token_id(config, "image", image), "video": token_id(config, "video", video)}


def _preparation(settings: Settings, kind: Kind, tower: Tower) -> Preparation:
    keys = settings.preparation(kind)
    names = ("video_processor_type", "image_processor_type", "feature_extractor_type")
    stated = next((keys.word(name) for name in names if keys.values.get(name)), None)
    name = (stated or "CLIPImageProcessor").removesuffix("Fast").removesuffix("Pil")
    name = name.replace("FeatureExtractor", "ImageProcessor")
    if name not in _TYPES:
        raise refuse(settings, f"has the {kind} processor {name}", f"one of {', '.join(_TYPES)}")
    found = Preparation.read(keys, _TYPES[name], can_pad=name == "LlavaImageProcessor")
    if found.out_size != (tower.tile_size, tower.tile_size):
        what = f"prepares {kind}s of size {found.out_size}"
        raise refuse(settings, what, f"{tower.tile_size} x {tower.tile_size}, as its tower takes")
    return found


def _pinpoints(settings: Settings, tower: Tower) -> list[Size]:
    config, side = settings.config, tower.tile_size
    default = _PINPOINTS
    if settings.name == "LlavaOnevisionForConditionalGeneration":
        default = [[side * row, side * column] for row in range(1, 7) for column in range(1, 7)]
    allowed = f"up to {_MOST_PINPOINTS} pairs of multiples of {side}"
    sizes = config.get("image_grid_pinpoints", default, (list,), allowed)
    for size in sizes:
        is_pair = isinstance(size, list) and [type(edge) for edge in size] == [int, int]
        if not is_pair or not all(0 < edge <= 64 * side and edge % side == 0 for edge in size):
            raise config.refuse("image_grid_pinpoints", allowed)
    if not 0 < len(sizes) <= _MOST_PINPOINTS:
        raise config.refuse("image_grid_pinpoints", allowed)
    return [(height, width) for height, width in sizes]
