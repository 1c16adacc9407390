"""Pixels as lossless PNG, and frames as animated PNG, with zlib alone.

PNG specification (third edition), with its animation chunks; filter type 2, the row above.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from ..api.media import Frames

_MAGIC = b"\x89PNG\r\n\x1a\n"
_LEVEL = 1  # of zlib: fast


def png(frames: Sequence[Frames]) -> bytes:
    """One frame [height, width, 3] as a PNG file; several of one size as an animated one that shows
    each for a second."""
    height, width = frames[0].shape[:2]
    chunks = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))]
    if len(frames) > 1:
        chunks.append(_chunk(b"acTL", struct.pack(">II", len(frames), 0)))
    for index, (number, frame) in enumerate(zip(_numbers(), frames, strict=False)):
        if len(frames) > 1:
            place = struct.pack(">IIIIIHHBB", number, width, height, 0, 0, 1, 1, 0, 0)
            chunks.append(_chunk(b"fcTL", place))
        pixels = zlib.compress(_filtered(frame), _LEVEL)
        after = struct.pack(">I", number + 1) + pixels
        chunks.append(_chunk(b"fdAT", after) if index else _chunk(b"IDAT", pixels))
    return b"".join([_MAGIC, *chunks, _chunk(b"IEND", b"")])


def _numbers() -> Iterator[int]:
    """The sequence number of each frame's first chunk: the first frame has one chunk of its own,
    each later one has two."""
    yield 0
    number = 1
    while True:
        yield number
        number += 2


def _filtered(frame: Frames) -> bytes:
    height, width = frame.shape[:2]
    rows = np.empty((height, 1 + width * 3), np.uint8)
    pixels = frame.reshape(height, width * 3)
    rows[:, 0] = 2
    rows[0, 1:] = pixels[0]
    np.subtract(pixels[1:], pixels[:-1], out=rows[1:, 1:])
    return rows.tobytes()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
