"""Pictures and clips of Qwen2-VL (arXiv:2409.12191), Qwen2.5-VL and Qwen3-VL: patches of any grid,
and rotary positions of three parts: time, row and column.

The tower sees each frame (a pair of a clip's frames) apart. Qwen3-VL writes the time of each frame
into the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np
import tokenizers

from ...api.files import TOKENIZER_BYTES, check_regular
from ...api.media import FEATURE, Kind, Layout, Media, Pixels
from ...api.protocol import InvalidCall, InvalidModel
from ..hub.files import TOKENIZER
from ..keys import Keys
from .base import Processor, Settings, refuse, token_id
from .prepare import CLIP, HALVES, Preparation, Size, check_shape, resized

_FPS = 24.0  # of clips that do not say
_MOST_FACTOR = 512


@dataclass(frozen=True, slots=True)
class Patches:
    """How frames of one kind become patches. patch, merge: pixels of a patch's edge, and patches of
    a feature's edge. depth: frames of a patch. fewest, most: pixels of a frame (of Qwen3-VL's
    clips: of all frames)."""

    prepared: Preparation
    patch: int
    merge: int
    depth: int
    fewest: int
    most: int

    @classmethod
    def read(cls, keys: Keys, defaults: Mapping[str, object], has_old_names: bool) -> Patches:
        """Of these settings. has_old_names: whether `min_pixels` and `max_pixels` count. Raises
        InvalidModel."""
        given = {key: value for key, value in keys.values.items() if value is not None}
        keys = Keys(keys.path, {**defaults, **given})
        if keys.flag("cap_pixels_per_frame", False):
            raise keys.refuse("cap_pixels_per_frame", "null or false")
        if not keys.flag("do_resize", True):
            raise keys.refuse("do_resize", "true")
        size = keys.section("size")
        fewest, most = size.count("shortest_edge"), size.count("longest_edge", most=1 << 40)
        if has_old_names:
            fewest = keys.count("min_pixels", fewest)
            most = keys.count("max_pixels", most, most=1 << 40)
        patch, merge = keys.count("patch_size", most=_MOST_FACTOR), keys.count("merge_size", most=8)
        depth = keys.count("temporal_patch_size", most=64)
        plain = Keys(keys.path, {**keys.values, "do_resize": False})
        return cls(Preparation.read(plain, {}), patch, merge, depth, fewest, most)

    def size(self, height: int, width: int, num_frames: int = 0) -> Size:
        """Pixels of a resized frame: multiples of a feature's edge, within the bounds. num_frames:
        whose pixels are bounded together; 0: each alone."""
        factor = self.patch * self.merge
        if num_frames and min(height, width) < factor:
            scale = max(factor / height, factor / width)
            height, width = int(height * scale), int(width * scale)
        rounded = round(height / factor) * factor, round(width / factor) * factor
        count = num_frames or 1
        total = rounded[0] * rounded[1] * (round(num_frames / self.depth) * self.depth or 1)
        if total > self.most:
            shrink = math.sqrt(count * height * width / self.most)
            return (
                max(factor, math.floor(height / shrink / factor) * factor),
                max(factor, math.floor(width / shrink / factor) * factor),
            )
        if total < self.fewest:
            grow = math.sqrt(self.fewest / (count * height * width))
            rounded = (
                math.ceil(height * grow / factor) * factor,
                math.ceil(width * grow / factor) * factor,
            )
        return rounded

    def of(self, media: Media, size: Size) -> np.ndarray:
        """[patches, numbers] of frames in this size: frame by frame, and within one feature by
        feature."""
        frames = np.stack([resized(it, size, self.prepared.resample) for it in media.frames])
        numbers = self.prepared.normalised(frames)
        missing = -len(numbers) % self.depth
        if missing:
            numbers = np.concatenate([numbers, np.repeat(numbers[-1:], missing, axis=0)])
        rows, columns = (edge // self.patch for edge in size)
        edges = rows // self.merge, self.merge, self.patch, columns // self.merge, self.merge
        parts = numbers.reshape(-1, self.depth, *edges, self.patch, 3)
        #          frame, depth, row, in feature, pixel, column, in feature, pixel, channel
        ordered = parts.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)
        return ordered.reshape(-1, 3 * self.depth * self.patch**2)


def _defaults(
    colours: Mapping[str, object], patch: int, fewest: int, most: int
) -> Mapping[str, object]:
    size = {"shortest_edge": fewest, "longest_edge": most}
    sizes = {"patch_size": patch, "merge_size": 2, "temporal_patch_size": 2}
    return MappingProxyType({**colours, **sizes, "size": size})


class Qwen2VL(Processor):
    """Qwen2-VL. Clips stand in prompts as one run of features."""

    _image_defaults: Mapping[str, object] = _defaults(CLIP, 14, 56 * 56, 28 * 28 * 1280)
    _video_defaults: Mapping[str, object] = _defaults(CLIP, 14, 128 * 28 * 28, 28 * 28 * 768)
    _bounds_clips = False

    def __init__(self, settings: Settings) -> None:
        config = settings.config
        image, video = token_id(config, "image", 151655), token_id(config, "video", 151656)
        super().__init__(settings, {"image": image, "video": video})
        self._vision, self._folder = settings.vision, settings.folder
        self._start = config.get("vision_start_token_id", 151652, (int,), "a token id")
        self._end = config.get("vision_end_token_id", 151653, (int,), "a token id")
        self._patches = {kind: self._read(settings, kind) for kind in settings.preparations}

    def _read(self, settings: Settings, kind: Kind) -> Patches:
        defaults = self._image_defaults if kind == "image" else self._video_defaults
        old_names = kind == "image" or not self._bounds_clips
        found = Patches.read(settings.preparation(kind), defaults, old_names)
        for mine, key in ((found.patch, "patch_size"), (found.depth, "temporal_patch_size")):
            if settings.vision.count(key, mine) != mine:
                raise refuse(settings, f"prepares {kind}s with {key} {mine}", "that of its tower")
        if settings.vision.count("spatial_merge_size", found.merge) != found.merge:
            raise refuse(settings, f"prepares {kind}s with merge_size {found.merge}", "its tower's")
        return found

    def wrapped(self, kind: Kind) -> Sequence[int]:
        """As `MediaProcessor.wrapped`."""
        return (self._start, self._placeholders[kind], self._end)

    def layout(self, media: Media) -> Layout:
        """As `MediaProcessor.layout`."""
        num_frames, rows, columns = self._features(media)
        merged = self._patches[media.kind].merge ** 2
        times = np.arange(num_frames, dtype=np.float32) * self._interval(media)
        grid = np.indices((num_frames, rows, columns)).reshape(3, -1)
        grid[0] = times.astype(np.int64)[grid[0]]
        return Layout(
            ids=np.full(num_frames * rows * columns, FEATURE, np.int32),
            unit_costs=(rows * columns * merged,) * num_frames,
            positions=grid,
            num_positions=max(rows, columns),
        )

    def pixels(self, media: Media) -> Pixels:
        """As `MediaProcessor.pixels`."""
        patches = self._patches[media.kind]
        num_frames, rows, columns = self._features(media)
        numbers = patches.of(media, self._size(media))
        grid = np.array([num_frames, rows * patches.merge, columns * patches.merge])
        arrays = {"patches": numbers, "grid": grid, **self._extra(media)}
        return Pixels(arrays, self.layout(media))

    def _size(self, media: Media) -> Size:
        height, width = check_shape(media)
        num_frames = len(media.frames)
        if self._bounds_clips and media.kind == "video":
            if num_frames < self._patches["video"].depth:
                allowed = f"at least {self._patches['video'].depth} frames"
                raise InvalidCall("video frames", num_frames, allowed)
            return self._patches["video"].size(height, width, num_frames)
        return self._patches[media.kind].size(height, width)

    def _features(self, media: Media) -> tuple[int, int, int]:
        """Frames, rows and columns of features."""
        patches = self._patches[media.kind]
        rows, columns = (edge // patches.patch // patches.merge for edge in self._size(media))
        return -(-len(media.frames) // patches.depth), rows, columns

    def _interval(self, media: Media) -> np.float32:
        """Time positions between frames."""
        return np.float32(1)

    def _extra(self, media: Media) -> dict[str, np.ndarray]:
        """Arrays that the whole model takes beside patches and grid."""
        return {}


class Qwen25VL(Qwen2VL):
    """Qwen2.5-VL: time positions count parts of a second."""

    def _interval(self, media: Media) -> np.float32:
        """As in Qwen2VL."""
        if media.kind == "image":
            return np.float32(1)
        rate = self._vision.number("tokens_per_second", 4)
        return np.float32(np.float32(rate) * self._extra(media)["second_per_grid_ts"][0])

    def _extra(self, media: Media) -> dict[str, np.ndarray]:
        """As in Qwen2VL."""
        if media.kind == "image":
            return {}
        seconds = self._patches["video"].depth / _fps(media)
        return {"second_per_grid_ts": np.array([seconds], np.float32)}


class Qwen3VL(Qwen2VL):
    """Qwen3-VL: each frame of a clip stands alone, behind its time."""

    _video_defaults = _defaults(HALVES, 16, 128 * 32 * 32, 32 * 32 * 768)
    _bounds_clips = True

    def layout(self, media: Media) -> Layout:
        """As `MediaProcessor.layout`."""
        whole = super().layout(media)
        if media.kind == "image":
            return whole
        num_frames, rows, columns = self._features(media)
        ids: list[int] = []
        positions: list[np.ndarray] = []
        position = 0
        grid = np.indices((1, rows, columns)).reshape(3, -1)
        for seconds in self._times(media, num_frames):
            before = [*self._encoded(f"<{seconds:.1f} seconds>"), self._start]
            ids += [*before, *[FEATURE] * (rows * columns), self._end]
            positions.append(np.tile(position + np.arange(len(before)), (3, 1)))
            position += len(before)
            positions.append(position + grid)
            position += max(rows, columns)
            positions.append(np.full((3, 1), position))
            position += 1
        numbers = np.concatenate(positions, axis=1)
        return Layout(np.array(ids, np.int32), whole.unit_costs, numbers, position)

    def _times(self, media: Media, num_frames: int) -> list[float]:
        """In the middle of the frames of each patch."""
        depth, times = self._patches["video"].depth, list(media.seconds)
        times = times or [index / _FPS for index in range(len(media.frames))]
        times += [times[-1]] * (num_frames * depth - len(times))
        return [
            (times[first] + times[first + depth - 1]) / 2 for first in range(0, len(times), depth)
        ]

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        return _tokenizer(self._folder)


def _fps(media: Media) -> float:
    """Frames a second of a clip."""
    if len(media.seconds) < 2 or media.seconds[-1] <= media.seconds[0]:
        return _FPS
    return (len(media.seconds) - 1) / (media.seconds[-1] - media.seconds[0])


def _tokenizer(folder: Path) -> tokenizers.Tokenizer:
    path = folder / TOKENIZER
    try:
        if check_regular(path) > TOKENIZER_BYTES:
            raise InvalidModel(f"{path} is too large for a tokenizer")
        return tokenizers.Tokenizer.from_file(str(path))
    except InvalidModel:
        raise
    except Exception as error:  # tokenizers raises plain exceptions
        raise InvalidModel(f"{path} cannot be read: {error}") from error
