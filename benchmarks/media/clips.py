"""Hostile clips, made by a seed: broken, lying, without frames, of too many tracks."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from functools import cache
from random import Random

import av
import numpy as np

from forkroot.benchmarks.media.pictures import EITHER, READ, REFUSED, chunk, gif, png

FRAMES, RATE, WIDTH, HEIGHT = 30, 10, 64, 48


@cache
def clip(form: str = "mp4", codec: str = "libx264", num: int = FRAMES, **options: str) -> bytes:
    """A clip whose frames become lighter, one by one."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=form, options=options) as container:
        stream = container.add_stream(codec, rate=RATE)
        stream.width, stream.height = WIDTH, HEIGHT
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.codec_context.gop_size = 12
        stream.bit_rate = 4_000_000
        for index in range(num):
            pixels = np.full((HEIGHT, WIDTH, 3), index * 8, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def sound(form: str = "mp4", tracks: int = 1) -> bytes:
    """A file of nothing but sound."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=form) as container:
        streams = [container.add_stream("pcm_s16le" if form == "matroska" else "aac", rate=8000)]
        streams += [container.add_stream("pcm_s16le", rate=8000) for _ in range(tracks - 1)]
        for stream in streams:
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.int16), "s16", "mono")
            frame.sample_rate = 8000
            container.mux(stream.encode(frame))
            container.mux(stream.encode())
    return buffer.getvalue()


def patched(data: bytes, box: bytes, offset: int, value: bytes) -> bytes:
    """An MP4 file with other bytes in a box; offset: after the box's name."""
    made, at = bytearray(data), data.find(box)
    while at >= 0:
        made[at + 4 + offset : at + 4 + offset + len(value)] = value
        at = data.find(box, at + 4)
    return bytes(made)


def box(name: bytes, *parts: bytes) -> bytes:
    """A box of MP4."""
    body = b"".join(parts)
    return struct.pack(">I", len(body) + 8) + name + body


def element(name: str, *parts: bytes, size: bytes | None = None) -> bytes:
    """An element of Matroska."""
    body = b"".join(parts)
    length = (len(body) | 1 << 56).to_bytes(8, "big") if size is None else size
    return bytes.fromhex(name) + length + body


def matroska_of(tracks: int) -> bytes:
    """A Matroska file of so many video tracks, without a frame."""
    head = element("1A45DFA3", element("4282", b"matroska"))
    track = [
        element(
            "AE",
            element("D7", struct.pack(">H", index + 1)),
            element("73C5", struct.pack(">H", index + 1)),
            element("83", b"\1"),
            element("86", b"V_VP8"),
            element("E0", element("B0", b"\x10"), element("BA", b"\x10")),
        )
        for index in range(tracks)
    ]
    return head + element("18538067", element("1654AE6B", *track))


def hostile_clips(seed: int) -> Iterator[tuple[str, str, Callable[[], bytes], int]]:
    """Name, what is expected, how it is made, and how many frames are wanted."""
    random = Random(seed)
    for name, (expected, make) in _CLIPS.items():
        yield name, expected, make, 4
    yield "noise as a clip", REFUSED, lambda: random.randbytes(100_000), 4
    yield "noise in MP4", REFUSED, lambda: clip()[:32] + random.randbytes(100_000), 4
    for number in (0, -1, 10**9):
        yield f"{number} frames of a clip", REFUSED, clip, number
    for form in ("mp4", "matroska", "avi"):
        yield f"{form} with flipped bits", EITHER, lambda form=form: _flipped(clip(form), random), 4


def _flipped(data: bytes, random: Random) -> bytes:
    made = bytearray(data)
    for _ in range(40):
        made[random.randrange(40, len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


_MOST = b"\x7f\xff\xff\xff"
_CLIPS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nothing as a clip": (REFUSED, lambda: b""),
    "text as a clip": (REFUSED, lambda: b"a clip"),
    "playlist of a site": (
        REFUSED,
        lambda: b"#EXTM3U\n#EXTINF:9,\nhttp://127.0.0.1/secret.ts\n#EXT-X-ENDLIST\n",
    ),
    "list of local files": (REFUSED, lambda: b"ffconcat version 1.0\nfile /etc/passwd\n"),
    "MP4 of its first box": (REFUSED, lambda: clip()[:32]),
    "MP4 cut before its index": (REFUSED, lambda: clip()[: len(clip()) // 2]),
    "MP4 whose data is cut": (
        EITHER,
        lambda: clip(movflags="frag_keyframe+empty_moov")[: -len(clip()) // 4],
    ),
    "MP4 of sound": (REFUSED, sound),
    "MP4 without a sample": (REFUSED, lambda: box(b"ftyp", b"isom" * 4) + box(b"moov")),
    "MP4 of boxes in boxes": (REFUSED, lambda: _nested()),
    "MP4 that lies about its length": (
        READ,
        lambda: patched(patched(clip(), b"mvhd", 16, _MOST), b"mdhd", 16, _MOST),
    ),
    "MP4 that lies about its samples": (
        EITHER,
        lambda: patched(patched(clip(), b"stsz", 8, _MOST), b"stts", 4, _MOST),
    ),
    "MP4 of samples of 2 GB": (REFUSED, lambda: patched(clip(), b"stsz", 4, _MOST)),
    "MP4 whose samples are elsewhere": (REFUSED, lambda: patched(clip(), b"stco", 8, _MOST)),
    "MP4 that says 16,384 a side": (
        EITHER,
        lambda: patched(clip(), b"avc1", 24, struct.pack(">HH", 16_384, 16_384)),
    ),
    "MP4 of an unknown codec": (REFUSED, lambda: clip().replace(b"avc1", b"abcd")),
    "MP4 before a ZIP": (READ, lambda: clip() + b"PK\3\4" + bytes(1000)),
    "AVI of pictures": (REFUSED, lambda: clip("avi", "mjpeg")),
    "AVI of its header": (REFUSED, lambda: clip("avi", "mpeg4")[:200]),
    "AVI whose length lies": (EITHER, lambda: b"RIFF" + _MOST + clip("avi", "mpeg4")[8:]),
    "Matroska of 5,000 tracks": (REFUSED, lambda: matroska_of(5000)),
    "Matroska without a frame": (REFUSED, lambda: matroska_of(1)),
    "Matroska of sound": (REFUSED, lambda: sound("matroska")),
    "Matroska of 40 tracks of sound": (REFUSED, lambda: sound("matroska", 40)),
    "Matroska of its header": (REFUSED, lambda: clip("matroska")[:200]),
    "Matroska of endless elements": (
        REFUSED,
        lambda: bytes.fromhex("1A45DFA3") + b"\x01" + b"\xff" * 7 + bytes(1000),
    ),
    "Matroska of elements in elements": (
        REFUSED,
        lambda: element("1A45DFA3") + bytes.fromhex("18538067" + "01ffffffffffffff") * 50_000,
    ),
    "GIF of 300,000 frames": (REFUSED, lambda: gif(4, 4, frames=300_000)),
    "GIF of 4,000 a side, 20,000 frames": (REFUSED, lambda: gif(4000, 4000, frames=20_000)),
    "PNG of frames that lie, as a clip": (
        REFUSED,
        lambda: png(chunk(b"acTL", struct.pack(">II", 30_000, 0))),
    ),
    "PNG of 2**31-1 frames": (
        REFUSED,
        lambda: png(chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0))),
    ),
    "PNG of one frame, as a clip": (READ, png),
}


def _nested() -> bytes:
    data = b""
    for _ in range(2000):
        data = box(b"moov", data)
    return box(b"ftyp", b"isom" * 4) + data
