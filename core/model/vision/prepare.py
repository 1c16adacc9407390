"""Pictures to a tower's input: resized by Pillow, cropped and normalised with numpy.

The values of `preprocessor_config.json`, with the meaning and the defaults that the image processor
classes of transformers give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...api.files import CONFIG_BYTES, read_object
from ...api.media import Frames, Media
from ...api.protocol import InvalidCall, InvalidModel
from ...common.extras import how_to_install
from ..keys import Keys

Floats: TypeAlias = npt.NDArray[np.float32]
Size: TypeAlias = tuple[int, int]  # height, width

BICUBIC = 3  # of Pillow
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
MOST_NARROW = 200  # the longer edge of a picture over the shorter one
_PROCESSOR = "processor_config.json"


@dataclass(frozen=True, slots=True)
class Preparation:
    """How one tile or frame becomes numbers.

    size: of the result of the first step; its shorter edge alone where the second is None; None:
      it is not resized. crop: then cut out of the middle. is_padded: made square first, with the
      mean's colour. resample: a filter of Pillow. scale, mean, std: a level x becomes (x scale -
      mean) / std.
    """

    size: tuple[int, int | None] | None
    crop: Size | None
    is_padded: bool
    resample: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def read(cls, keys: Keys, defaults: Mapping[str, Any], can_pad: bool = False) -> Preparation:
        """Of these settings. can_pad: whether `do_pad` makes pictures square. Raises
        InvalidModel."""
        given = {key: value for key, value in keys.values.items() if value is not None}
        keys = Keys(keys.path, {**defaults, **given})
        resizes, crops = keys.flag("do_resize", True), keys.flag("do_center_crop", False)
        normalises, scales = keys.flag("do_normalize", True), keys.flag("do_rescale", True)
        return cls(
            size=_size(keys, "size") if resizes else None,
            crop=_crop(keys) if crops else None,
            is_padded=can_pad and keys.flag("do_pad", False),
            resample=keys.get("resample", BICUBIC, (int,), "a filter of Pillow"),
            scale=keys.number("rescale_factor", 1 / 255) if scales else 1.0,
            mean=keys.numbers("image_mean", 3) if normalises else (0.0,) * 3,
            std=keys.numbers("image_std", 3) if normalises else (1.0,) * 3,
        )

    @property
    def out_size(self) -> Size | None:
        """Of every result, where that does not depend on the picture."""
        if self.crop is not None or self.size is None:
            return self.crop
        height, width = self.size
        if width is None:
            return (height, height) if self.is_padded else None
        return height, width

    def tile(self, frame: Frames) -> Floats:
        """[3, height, width] of a frame [height, width, 3]."""
        if self.is_padded:
            frame = self._squared(frame)
        if self.size is not None:
            frame = resized(frame, self._target(frame.shape[0], frame.shape[1]), self.resample)
        if self.crop is not None:
            frame = _cropped(frame, self.crop)
        return self.normalised(frame).transpose(2, 0, 1)

    def normalised(self, levels: Frames) -> Floats:
        """Levels [..., 3] as numbers."""
        scaled = (np.arange(256) * self.scale).astype(np.float32)[:, None]
        table = (scaled - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        out = np.empty(levels.shape, np.float32)
        for channel in range(3):
            np.take(table[:, channel], levels[..., channel], out=out[..., channel])
        return out

    def _target(self, height: int, width: int) -> Size:
        assert self.size is not None
        shorter, other = self.size
        if other is not None:
            return shorter, other
        longer = int(shorter * max(height, width) / min(height, width))
        return (shorter, longer) if height <= width else (longer, shorter)

    def _squared(self, frame: Frames) -> Frames:
        height, width = frame.shape[:2]
        side = max(height, width)
        square = np.empty((side, side, 3), np.uint8)
        square[:] = [int(mean * 255) for mean in self.mean]
        top, left = (side - height) // 2, (side - width) // 2
        square[top : top + height, left : left + width] = frame
        return square


def check_shape(media: Media) -> Size:
    """Height and width of frames. Raises InvalidCall for very narrow ones, of which a resized one
    would need any amount of memory."""
    height, width = media.frames.shape[1:3]
    if max(height, width) > MOST_NARROW * min(height, width):
        allowed = f"edges of which none is more than {MOST_NARROW} times the other"
        raise InvalidCall(f"{media.kind} size", f"{width} x {height}", allowed)
    return height, width


def resized(frame: Frames, size: Size, resample: int) -> Frames:
    """A frame [height, width, 3] in another size, by Pillow."""
    if frame.shape[:2] == size:
        return frame
    try:
        from PIL import Image
    except ImportError as error:
        wanted = how_to_install("images")
        raise InvalidModel(f"pictures need Pillow, which is not installed; {wanted}") from error
    image = Image.fromarray(np.ascontiguousarray(frame))
    return np.asarray(image.resize((size[1], size[0]), Image.Resampling(resample)))


def _cropped(frame: Frames, size: Size) -> Frames:
    """The middle of a frame, with black around it where it is smaller."""
    for axis, wanted in enumerate(size):
        have = frame.shape[axis]
        if have < wanted:
            before = -(-(wanted - have) // 2)
            pads = [(0, 0)] * 3
            pads[axis] = before, wanted - have - before
            frame = np.pad(frame, pads)
        else:
            start = (have - wanted) // 2
            frame = frame[start : start + wanted] if axis == 0 else frame[:, start : start + wanted]
    return frame


def settings_of(folder: Path, kind: str) -> Keys | None:
    """The settings for "image" or "video" of a checkpoint; None where it has none. Raises
    InvalidModel."""
    if (folder / _PROCESSOR).is_file():
        keys = Keys.read(folder / _PROCESSOR)
        if f"{kind}_processor" in keys.values:
            return keys.section(f"{kind}_processor")
    names = ["preprocessor_config.json"]
    names = ["video_preprocessor_config.json", *names] if kind == "video" else names
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    return None if found is None else Keys(found, read_object(found, CONFIG_BYTES))


def _size(keys: Keys, key: str) -> tuple[int, int | None]:
    value = keys.get(key, None, (int, dict), "a size")
    if isinstance(value, int):
        return keys.count(key), None
    size = keys.section(key)
    if "shortest_edge" in size.values:
        return size.count("shortest_edge"), None
    return size.count("height"), size.count("width")


def _crop(keys: Keys) -> Size:
    height, width = _size(keys, "crop_size")
    return height, height if width is None else width
