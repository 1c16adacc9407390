"""Pictures and clips without files or towers: `picture(2, 3)` is a picture of 2 rows and 3 columns
of features, which `FakeProcessor` puts into prompts of `byte_tokenizer`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.api.media import FEATURE, Kind, Layout, Media, Pixels
from ...core.api.protocol import Image, InvalidCall, Shown, Video

PLACEHOLDERS: dict[Kind, int] = {"image": 255, "video": 254}  # bytes that are in no text
OPEN, BREAK, CLOSE = 253, 252, 251


def picture(rows: int, columns: int, seed: int = 0) -> Image:
    """An encoded picture."""
    return Image(bytes((rows, columns, seed % 256, seed // 256)))


def clip(rows: int, columns: int, num_frames: int, seed: int = 0) -> Video:
    """An encoded clip."""
    return Video(bytes((rows, columns, seed % 256, seed // 256)), num_frames)


def load(source: Image | Video) -> Media:
    """Decode one of these. Raises InvalidCall for other bytes."""
    if len(source.data) != 4:
        raise InvalidCall("prompt", Shown(f"{len(source.data)} bytes"), "a picture of 4 bytes")
    rows, columns, low, high = source.data
    frames = source.num_frames if isinstance(source, Video) else 1
    kind: Kind = "video" if isinstance(source, Video) else "image"
    pixels = np.full((frames, rows, columns, 3), low, np.uint8)
    pixels[..., 0] = high
    return Media.of(kind, pixels)


class FakeProcessor:
    """A row of a picture, or a frame of a clip, is a unit of the tower, which costs twice its
    features; a token stands between two rows.

    tokens: placeholders of another vocabulary. is_rotary: positions have three parts.
    num_layouts, num_pixels: how often these were asked for.
    """

    def __init__(
        self,
        is_rotary: bool = False,
        kinds: Sequence[Kind] = ("image", "video"),
        tokens: dict[Kind, int] | None = None,
    ) -> None:
        self.settings = b"fake"
        self.kinds = frozenset(kinds)
        self.num_layouts = self.num_pixels = 0
        self._is_rotary = is_rotary
        self._tokens = tokens or PLACEHOLDERS

    def placeholder(self, kind: Kind) -> int:
        """As `MediaProcessor.placeholder`."""
        return self._tokens[kind]

    def wrapped(self, kind: Kind) -> Sequence[int]:
        """As `MediaProcessor.wrapped`."""
        return (OPEN, self._tokens[kind], CLOSE)

    def layout(self, media: Media) -> Layout:
        """As `MediaProcessor.layout`."""
        self.num_layouts += 1
        frames, rows, columns = media.frames.shape[:3]
        row = [FEATURE] * columns
        if media.kind == "video":
            ids, units = row * rows * frames, [2 * rows * columns] * frames
        else:
            ids, units = [*row, BREAK] * rows, [2 * columns] * rows
            del ids[-1]
        positions = None
        if self._is_rotary:  # of all one column: half as many as tokens
            steps = np.arange(len(ids)) // 2
            positions = np.stack((np.zeros_like(steps), steps, steps)).astype(np.int64)
        count = (len(ids) + 1) // 2
        return Layout(np.array(ids, np.int32), tuple(units), positions, count)

    def pixels(self, media: Media) -> Pixels:
        """As `MediaProcessor.pixels`."""
        self.num_pixels += 1
        return Pixels({"frames": media.frames}, self.layout(media))
