"""The pictures of the examples, as PNG files."""

import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .drawing import draw
from .scene import scene_of


def save_pictures(folder: Path, size: int = 256, seed: int = 22) -> None:
    """Write a picture of two shapes, of some shapes, of a digit and of a word; all held-out."""
    rng = random.Random(seed)
    for name, kind in (("two", "two"), ("shapes", "shapes"), ("digit", "digit"), ("sign", "word")):
        scene = replace(scene_of(rng, kind, held_out=True), noise=0)
        (folder / f"{name}.png").write_bytes(png(draw(scene, size)))


def png(picture: npt.NDArray[np.uint8]) -> bytes:
    """A picture [height, width, 3] as a PNG file."""
    height, width, _ = picture.shape
    lines = b"".join(b"\0" + line.tobytes() for line in picture)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
