"""Hostile pictures, made by a seed: broken, lying, inflating, slow."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

from PIL import Image as Pillow

REFUSED, READ, EITHER = "refused", "read", "either"
PNG = b"\x89PNG\r\n\x1a\n"
SIZE = 24  # pixels a side of what is not large


def chunk(name: bytes, data: bytes, size: int | None = None, crc: int | None = None) -> bytes:
    """A chunk of PNG. size, crc: what it says they are, where it lies."""
    told = len(data) if size is None else size
    check = zlib.crc32(name + data) if crc is None else crc
    return struct.pack(">I", told) + name + data + struct.pack(">I", check)


def header(width: int = SIZE, height: int = SIZE, depth: int = 8, colours: int = 2) -> bytes:
    """PNG's first chunk."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0))


@cache
def zeros(num: int) -> bytes:
    """So many zero bytes, compressed."""
    pressed = zlib.compressobj(9)
    block = bytes(1 << 20)
    parts = [pressed.compress(block[: min(len(block), num - at)]) for at in range(0, num, 1 << 20)]
    return b"".join([*parts, pressed.flush()])


def encoded(form: str, side: int = SIZE, seed: int = 0, **options: Any) -> bytes:
    """A picture of noise."""
    pixels = Random(seed).randbytes(side * side * 3)
    buffer = io.BytesIO()
    Pillow.frombytes("RGB", (side, side), pixels).save(buffer, form, **options)
    return buffer.getvalue()


def png(*chunks: bytes, pixels: bytes | None = None, head: bytes | None = None) -> bytes:
    """A PNG file with these chunks before its pixels."""
    data = zlib.compress(bytes((SIZE * 3 + 1) * SIZE)) if pixels is None else pixels
    parts = [PNG, header() if head is None else head, *chunks, chunk(b"IDAT", data)]
    return b"".join([*parts, chunk(b"IEND", b"")])


def exif(entries: int, size: int, order: str = "<") -> bytes:
    """Exif data whose tags all point at the same bytes."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, entries)
    tags = [struct.pack(order + "HHII", 40_000 + i % 20_000, 7, size, 8) for i in range(entries)]
    return (head + b"".join(tags) + bytes(4)).ljust(size + 8, b"\0")


def tiff(tags: dict[int, tuple[int, int, int]], tail: bytes = b"") -> bytes:
    """A TIFF file of these tags: type, count and value of each."""
    given = {256: (4, 1, SIZE), 257: (4, 1, SIZE), 258: (3, 1, 8), 259: (3, 1, 1), 262: (3, 1, 1)}
    given |= {273: (4, 1, 500), 277: (3, 1, 1), 278: (4, 1, SIZE), 279: (4, 1, SIZE * SIZE), **tags}
    body = b"".join(struct.pack("<HHII", tag, *given[tag]) for tag in sorted(given))
    head = b"II*\0" + struct.pack("<IH", 8, len(given)) + body + bytes(4)
    return head.ljust(500, b"\0") + (tail or bytes(SIZE * SIZE))


def segment(marker: int, data: bytes, size: int | None = None) -> bytes:
    """A segment of JPEG."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2 if size is None else size) + data


def after_start(jpeg: bytes, *segments: bytes) -> bytes:
    """A JPEG file with these segments at its beginning."""
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def resized(jpeg: bytes, width: int, height: int) -> bytes:
    """A JPEG file whose frame header says another size."""
    at = next(at for at in range(len(jpeg)) if jpeg[at : at + 2] in (b"\xff\xc0", b"\xff\xc2"))
    return jpeg[: at + 5] + struct.pack(">HH", height, width) + jpeg[at + 9 :]


def bmp(width: int, height: int, bits: int, packing: int, data: bytes, colours: int = 0) -> bytes:
    """A BMP file."""
    fields = (40, width, height, 1, bits, packing, len(data), 0, 0, colours, 0)
    start = 54 + 4 * (1 << bits if bits <= 8 else 0)
    head = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start)
    return (head + struct.pack("<IiiHHIIiiII", *fields)).ljust(start, b"\0") + data


def gif(width: int, height: int, blocks: bytes = b"", frames: int = 1) -> bytes:
    """A GIF file of frames of one pixel, with these blocks before them."""
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02D\x01\0"
    return head + blocks + frame * frames + b";"


def webp(*chunks: tuple[bytes, bytes], size: int | None = None) -> bytes:
    """A WebP file of these chunks."""
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) if size is None else size) + body


def canvas(width: int, height: int, flags: int = 0) -> bytes:
    """WebP's header of an extended file."""
    sides = b"".join((side - 1).to_bytes(3, "little") for side in (width, height))
    return bytes((flags, 0, 0, 0)) + sides


def hostile_pictures(seed: int) -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    """Name, what is expected, and how it is made."""
    random = Random(seed)
    for name, expected, data in _other(random):
        yield name, expected, lambda data=data: data
    for makers in (_PNGS, _JPEGS, _GIFS, _WEBPS, _BMPS, _TIFFS):
        for name, (expected, make) in makers.items():
            yield name, expected, make


def _other(random: Random) -> Iterator[tuple[str, str, bytes]]:
    yield "nothing", REFUSED, b""
    yield "noise", REFUSED, random.randbytes(100_000)
    yield "one byte", REFUSED, b"\x89"
    yield "HTML", REFUSED, b"<!DOCTYPE html><script>alert(1)</script>"
    yield "SVG with entities", REFUSED, b'<?xml version="1.0"?><svg>&lol9;</svg>'
    yield "PDF before a PNG", REFUSED, b"%PDF-1.7\n" + png()
    yield "ZIP before a PNG", REFUSED, b"PK\3\4" + png()
    yield "GIF's name on a PNG", REFUSED, b"GIF89a" + png()
    yield "PNG's name on a JPEG", REFUSED, PNG + encoded("JPEG")
    yield "EPS", REFUSED, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    yield "JPEG 2000", REFUSED, b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(100)
    for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        data = encoded(form)
        yield f"{form} cut in half", REFUSED, data[: len(data) // 2]
        yield f"{form} of its first 16 bytes", REFUSED, data[:16]
        flipped = bytearray(data)
        for _ in range(20):
            flipped[random.randrange(12, len(data))] ^= 1 << random.randrange(8)
        yield f"{form} with flipped bits", EITHER, bytes(flipped)


_PNGS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "PNG of no pixels": (REFUSED, lambda: png(head=header(0, 0))),
    "PNG of no rows": (REFUSED, lambda: png(head=header(9, 0))),
    "PNG of 2**31-1 a side": (REFUSED, lambda: png(head=header(2**31 - 1, 2**31 - 1))),
    "PNG of one long row": (REFUSED, lambda: png(head=header(65_536, 1))),
    "PNG bomb of 20,000 a side": (
        REFUSED,
        lambda: png(head=header(20_000, 20_000), pixels=zeros(64 << 20)),
    ),
    "PNG of few pixels, in IDAT of 64 MB": (READ, lambda: png(pixels=zeros(64 << 20))),
    "PNG with text of 64 MB": (READ, lambda: png(chunk(b"zTXt", b"a\0\0" + zeros(64 << 20)))),
    "PNG with translated text of 64 MB": (
        READ,
        lambda: png(chunk(b"iTXt", b"a\0\1\0\0\0" + zeros(64 << 20))),
    ),
    "PNG with a profile of 64 MB": (
        READ,
        lambda: png(chunk(b"iCCP", b"a\0\0" + zeros(64 << 20))),
    ),
    "PNG with tags that overlap": (READ, lambda: png(chunk(b"eXIf", exif(60_000, 1 << 20)))),
    "PNG of 100,000 chunks": (REFUSED, lambda: png(*[chunk(b"tEXt", b"a\0b")] * 100_000)),
    "PNG whose chunk is too long": (REFUSED, lambda: png(chunk(b"tEXt", b"a", size=2**31 - 1))),
    "PNG with a wrong checksum": (REFUSED, lambda: PNG + header()[:-1] + b"\0" + png()[33:]),
    "PNG with IDAT that is not zlib": (REFUSED, lambda: png(pixels=b"\xff" * 100)),
    "PNG with too few rows": (REFUSED, lambda: png(pixels=zlib.compress(bytes(100)))),
    "PNG of a colour type that is none": (REFUSED, lambda: png(head=header(colours=5))),
    "PNG of 64 bits": (REFUSED, lambda: png(head=header(depth=64))),
    "PNG with two headers": (REFUSED, lambda: png(header(20_000, 20_000))),
    "PNG before a ZIP": (READ, lambda: png() + b"PK\3\4" + bytes(1000)),
    "PNG of frames that lie": (READ, lambda: png(chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)))),
}
_JPEGS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "JPEG of no pixels": (REFUSED, lambda: resized(encoded("JPEG"), 0, 0)),
    "JPEG of 65,535 a side": (REFUSED, lambda: resized(encoded("JPEG"), 65_535, 65_535)),
    "JPEG that says 8,000 a side": (REFUSED, lambda: resized(encoded("JPEG"), 8000, 8000)),
    "JPEG of 200,000 scans": (REFUSED, lambda: _scans(200_000, 64)),
    "JPEG of 500 scans, 8,000 a side": (REFUSED, lambda: _scans(500, 8000) + bytes(200_000)),
    "JPEG of 100,000 comments": (
        REFUSED,
        lambda: after_start(encoded("JPEG"), *[segment(0xFE, b"a")] * 100_000),
    ),
    "JPEG with 8 MB of fill bytes": (
        REFUSED,
        lambda: after_start(encoded("JPEG"), b"\xff" * (8 << 20)),
    ),
    "JPEG with a segment of length 0": (
        REFUSED,
        lambda: after_start(encoded("JPEG"), segment(0xE5, b"", 0)),
    ),
    "JPEG with tags that overlap": (
        READ,
        lambda: after_start(
            encoded("JPEG"), segment(0xE1, b"Exif\0\0" + exif(5000, 60_000)[:65_000])
        ),
    ),
    "JPEG with 500 segments of tags": (
        READ,
        lambda: after_start(
            encoded("JPEG"), *[segment(0xE1, b"Exif\0\0" + exif(5000, 60_000)[:65_000])] * 500
        ),
    ),
    "JPEG with tags in a circle": (
        READ,
        lambda: after_start(encoded("JPEG"), segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\0\0\x08\0")),
    ),
    "JPEG with a list of pictures that lies": (
        READ,
        lambda: after_start(encoded("JPEG"), segment(0xE2, b"MPF\0II*\0\xff\xff\xff\xff")),
    ),
    "JPEG without tables": (REFUSED, lambda: b"\xff\xd8" + encoded("JPEG")[158:]),
    "JPEG of arithmetic coding": (
        REFUSED,
        lambda: encoded("JPEG").replace(b"\xff\xc0", b"\xff\xc9", 1),
    ),
    "JPEG before a ZIP": (READ, lambda: encoded("JPEG") + b"PK\3\4" + bytes(1000)),
}
_GIFS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "GIF of no pixels": (EITHER, lambda: gif(0, 0)),
    "GIF of 65,535 a side": (REFUSED, lambda: gif(65_535, 65_535)),
    "GIF with comments of 16 MB": (
        EITHER,
        lambda: gif(4, 4, b"!\xfe" + (b"\xff" + b"a" * 255) * 65_536 + b"\0"),
    ),
    "GIF without a frame": (REFUSED, lambda: gif(4, 4, frames=0)),
    "GIF with a frame off its canvas": (
        REFUSED,
        lambda: gif(4, 4)[:19] + b"," + struct.pack("<HHHHB", 60_000, 60_000, 9, 9, 0) + b"\x02\0;",
    ),
    "GIF of an unknown block": (REFUSED, lambda: gif(4, 4)[:19] + b"?" * 100_000),
}
_WEBPS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "WebP of 16,384 a side": (
        REFUSED,
        lambda: webp((b"VP8X", canvas(16_384, 16_384)), (b"VP8L", b"/" + bytes(50))),
    ),
    "WebP of 16,777,216 a side": (REFUSED, lambda: webp((b"VP8X", canvas(1 << 24, 1 << 24)))),
    "WebP without a picture": (REFUSED, lambda: webp((b"VP8X", canvas(9, 9)))),
    "WebP that moves, without a frame": (
        REFUSED,
        lambda: webp((b"VP8X", canvas(9, 9, 2)), (b"ANIM", bytes(6))),
    ),
    "WebP whose length lies": (REFUSED, lambda: webp((b"VP8L", b"/" + bytes(9)), size=2**32 - 2)),
    "RIFF of sound": (REFUSED, lambda: b"RIFF\x24\0\0\0WAVEfmt " + bytes(100)),
}
_BMPS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "BMP of no pixels": (REFUSED, lambda: bmp(0, 0, 24, 0, b"")),
    "BMP of 2**31-1 a side": (REFUSED, lambda: bmp(2**31 - 1, 2**31 - 1, 24, 0, b"")),
    "BMP of a negative width": (REFUSED, lambda: bmp(-9, 9, 24, 0, bytes(1000))),
    "BMP of 3 bits": (REFUSED, lambda: bmp(9, 9, 3, 0, bytes(1000))),
    "BMP of 4 billion colours": (REFUSED, lambda: bmp(9, 9, 8, 0, bytes(99), 2**32 - 1)),
    "BMP of 8 million jumps": (
        EITHER,
        lambda: bmp(64, 64, 8, 1, b"\0\2\0\0" * (4 << 20) + b"\0\1"),
    ),
    "BMP that says 8,000 a side": (REFUSED, lambda: bmp(8000, 8000, 24, 0, bytes(1000))),
}
_TIFFS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "TIFF of no pixels": (REFUSED, lambda: tiff({256: (4, 1, 0), 257: (4, 1, 0)})),
    "TIFF of 2**31-1 a side": (REFUSED, lambda: tiff({256: (4, 1, 2**31 - 1)})),
    "TIFF whose directory is elsewhere": (REFUSED, lambda: b"II*\0\xff\xff\xff\x7f" + bytes(99)),
    "TIFF whose directories are a circle": (EITHER, lambda: _circle()),
    "TIFF of 4 million strips": (
        REFUSED,
        lambda: tiff({273: (4, 4 << 20, 500)}, bytes(16 << 20)),
    ),
    "TIFF with tags that overlap": (READ, lambda: _overlaps()),
    "TIFF of an unknown compression": (REFUSED, lambda: tiff({259: (3, 1, 34_712)})),
    "TIFF of Deflate that is none": (REFUSED, lambda: tiff({259: (3, 1, 8)})),
    "TIFF with a strip of 64 MB": (
        EITHER,
        lambda: tiff({259: (3, 1, 8), 279: (4, 1, 300_000)}, zeros(64 << 20)),
    ),
    "TIFF of 65,535 channels": (REFUSED, lambda: tiff({277: (3, 1, 65_535)})),
    "TIFF whose strip is elsewhere": (REFUSED, lambda: tiff({273: (4, 1, 2**31)})),
    "BigTIFF": (REFUSED, lambda: b"II+\0\x08\0\0\0" + bytes(100)),
}


def _scans(num: int, side: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again, empty."""
    data = encoded("JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    end = last + 2 + struct.unpack_from(">H", data, last + 2)[0]
    return resized(data[:last] + (data[last:end] + b"\0") * num + data[last:], side, side)


def _circle() -> bytes:
    data = bytearray(tiff({}))
    (num,) = struct.unpack_from("<H", data, 8)
    struct.pack_into("<I", data, 10 + 12 * num, 8)
    return bytes(data)


def _overlaps() -> bytes:
    """All of 8 MB, again and again."""
    tags = dict.fromkeys(range(50_000, 50_030), (7, 8 << 20, 0))
    return tiff(tags, bytes(8 << 20))
