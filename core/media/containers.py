"""Formats of files by their first bytes, and files of pictures without what is no pixel.

Decoders of metadata are where broken files do harm: text and colour profiles that inflate, tags
that point at one another. So pictures reach Pillow without them; of all metadata only the
orientation is read, here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .limits import MediaLimits, check_size, refused

PICTURES = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
ANIMATIONS = ("PNG", "WEBP", "GIF")
CLIPS = {"MP4": "mov,mp4,m4a,3gp,3g2,mj2", "Matroska": "matroska,webm", "AVI": "avi"}
_MAGIC = (
    ("PNG", 0, b"\x89PNG\r\n\x1a\n"),
    ("JPEG", 0, b"\xff\xd8\xff"),
    ("WEBP", 8, b"WEBP"),
    ("GIF", 0, b"GIF87a"),
    ("GIF", 0, b"GIF89a"),
    ("BMP", 0, b"BM"),
    ("TIFF", 0, b"II*\0"),
    ("TIFF", 0, b"MM\0*"),
    ("MP4", 4, b"ftyp"),
    ("Matroska", 0, b"\x1aE\xdf\xa3"),
    ("AVI", 8, b"AVI "),
)
_MOST_PARTS = 1 << 16  # segments, chunks or entries of a file
_MOST_SCANS = 1024  # of a JPEG
_SCANS_OF_LARGEST = 16  # of a JPEG of `media_pixels`; smaller ones may have more
_MOST_STRIPS = 1 << 16  # of a TIFF, and values of any other tag
_PNG_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_PNG_FRAMES = (b"acTL", b"fcTL", b"fdAT")
_JPEG_KEPT = (0xE0, 0xEE)  # JFIF and Adobe, which say how colours are coded
_FIRST = 8  # of the segments, where those two are kept
_JPEG_FRAMES = frozenset((0xC0, 0xC1, 0xC2))  # Huffman coded: a block takes a bit at least
_JPEG_OTHERS = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MOST_PIXELS_PER_BYTE = 512
_ORIENTATION = 0x0112
_TIFF_KEPT = frozenset(
    (
        *(254, 256, 257, 258, 259, 262, 266, 273, _ORIENTATION, 277, 278, 279, 284),
        *(292, 293, 317, 320, 322, 323, 324, 325, 338, 339, 347, 530, 531, 532),
    )
)
_TIFF_COMPRESSIONS = frozenset((1, 2, 3, 4, 5, 7, 8, 32773, 32946))
_TIFF_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8)  # bytes of a value, by its type
_NO_TAG = 65_000


class PictureFile(NamedTuple):
    """A picture's file as it is decoded. orientation: 1 to 8, as Exif has it."""

    data: bytes
    orientation: int = 1


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tag of a TIFF. at: the offset of its entry."""

    at: int
    tag: int
    kind: int
    count: int


def format_of(data: bytes) -> str | None:
    """One of PICTURES or CLIPS, or None."""
    found = (name for name, at, magic in _MAGIC if data.startswith(magic, at))
    name = next(found, None)
    is_riff = data.startswith(b"RIFF")
    return name if name not in ("WEBP", "AVI") or is_riff else None


def pixels_only(data: bytes, form: str, limits: MediaLimits, *, frames: bool) -> PictureFile:
    """A picture without its metadata. frames: whether it stays animated. Raises InvalidCall for a
    structure that is broken, or made to cost time or memory."""
    try:
        match form:
            case "JPEG":
                return _jpeg(data, limits)
            case "PNG":
                width, height = struct.unpack_from(">II", data, 16)
                check_size(width, height, limits)
                return _png(data, (*_PNG_PIXELS, *_PNG_FRAMES * frames))
            case "TIFF":
                return _tiff(data)
            case "GIF":
                width, height = struct.unpack_from("<HH", data, 6)
                check_size(max(width, 1), max(height, 1), limits)
            case "WEBP":
                check_size(*_webp_size(data), limits)
    except (struct.error, IndexError) as error:
        raise refused(f"{form} data that ends too early", "a whole file") from error
    return PictureFile(data)


def orientation_of(exif: bytes) -> int:
    """The orientation in Exif data; 1 where there is none."""
    data = exif.removeprefix(b"Exif\0\0")
    try:
        order = _byte_order(data)
        entry = next((it for it in _entries(data, order) if it.tag == _ORIENTATION), None)
        if entry is None:
            return 1
        (value,) = struct.unpack_from(order + "H", data, entry.at + 8)
    except (struct.error, ValueError):
        return 1
    return value if 1 <= value <= 8 else 1


def _jpeg(data: bytes, limits: MediaLimits) -> PictureFile:
    kept, at, pixels = [data[:2]], 2, 0
    orientation: int | None = None
    for _ in range(_MOST_PARTS):
        if data[at] != 0xFF:
            raise refused("a JPEG file with broken segments", "a whole JPEG file")
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker == 0xDA:
            if pixels > _MOST_PIXELS_PER_BYTE * len(data):
                raise refused("a JPEG file that ends too early", "a whole file")
            _check_scans(data.count(b"\xff\xda", at), pixels, limits)
            return PictureFile(b"".join([*kept, data[at:]]), orientation or 1)
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        if marker == 0xE1 and orientation is None and data.startswith(b"Exif\0\0", at + 4):
            orientation = orientation_of(data[at + 4 : end])
        if marker in _JPEG_OTHERS:
            raise refused(
                "a JPEG file of arithmetic or lossless coding", "the usual Huffman coding"
            )
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            check_size(width, height, limits)
            pixels = max(pixels, height * width)
        if marker < 0xE0 or (marker in _JPEG_KEPT and len(kept) < _FIRST):
            kept.append(data[at:end])
        at = end
    raise refused("a JPEG file of too many segments", f"at most {_MOST_PARTS}")


def _check_scans(num: int, pixels: int, limits: MediaLimits) -> None:
    """Each scan of a progressive JPEG, however short, is a pass over all of its pixels."""
    if num > _MOST_SCANS or num * pixels > _SCANS_OF_LARGEST * limits.pixels:
        allowed = f"at most {_MOST_SCANS}, and fewer for a large one"
        raise refused(f"a JPEG file of {num} scans", allowed)


def _png(data: bytes, names: tuple[bytes, ...]) -> PictureFile:
    kept, at, start = list[bytes](), 8, 0
    orientation: int | None = None
    for _ in range(_MOST_PARTS):
        (size,) = struct.unpack_from(">I", data, at)
        name, end = data[at + 4 : at + 8], at + 12 + size
        if name not in names:
            kept.append(data[start:at])
            start = end
            if name == b"eXIf" and orientation is None:
                orientation = orientation_of(data[at + 8 : end - 4])
        at = end
        if name == b"IEND" or at >= len(data):
            kept.append(data[start:at])
            return PictureFile(b"".join(kept), orientation or 1)
    raise refused("a PNG file of too many chunks", f"at most {_MOST_PARTS}")


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
            return width + 1, height + 1
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise refused("a WebP file without a picture", "a whole WebP file")


def _tiff(data: bytes) -> PictureFile:
    """Other tags are overwritten by one that means nothing; Pillow turns the picture itself."""
    order = _byte_order(data)
    made = bytearray(data)
    empty = struct.pack(order + "HHI4x", _NO_TAG, 1, 1)
    for entry in _entries(data, order):
        if entry.tag not in _TIFF_KEPT:
            made[entry.at : entry.at + 12] = empty
        elif entry.count > _MOST_STRIPS or not 0 < entry.kind < len(_TIFF_SIZES):
            raise refused(f"a TIFF tag of {entry.count} values", f"at most {_MOST_STRIPS}")
        elif entry.tag == 259:
            (value,) = struct.unpack_from(order + "H", data, entry.at + 8)
            if value not in _TIFF_COMPRESSIONS:
                raise refused(f"a TIFF file of compression {value}", "LZW, Deflate or none")
    return PictureFile(bytes(made))


def _byte_order(data: bytes) -> str:
    """As `struct` writes it. Raises ValueError."""
    if data[:4] not in (b"II*\0", b"MM\0*"):
        raise ValueError("no TIFF header")
    return "<" if data[:1] == b"I" else ">"


def _entries(data: bytes, order: str) -> Iterator[_Entry]:
    """The tags of the first directory of a TIFF. Raises struct.error where it is cut."""
    (start,) = struct.unpack_from(order + "I", data, 4)
    (num,) = struct.unpack_from(order + "H", data, start)
    for at in range(start + 2, start + 2 + 12 * num, 12):
        yield _Entry(at, *struct.unpack_from(order + "HHI", data, at))
