"""Pictures of every format and mode become the right RGB pixels, within limits."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Image, InvalidCall, UnsupportedCall, Video
from forkroot.core.media.limits import MediaLimits
from forkroot.core.media.load import load

pillow = pytest.importorskip("PIL.Image")
LIMITS = MediaLimits.of(EngineConfig())
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
CORNERS = np.kron(
    np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [0, 0, 0]]], np.uint8),
    np.ones((16, 24, 1), np.uint8),
)


def encoded(form: str, image: Any = None, **options: Any) -> bytes:
    buffer = io.BytesIO()
    (pillow.fromarray(PIXELS) if image is None else image).save(buffer, form, **options)
    return buffer.getvalue()


def pixels(data: bytes, limits: MediaLimits = LIMITS) -> Any:
    frames = load(Image(data), limits).frames
    assert (frames.shape[0], frames.dtype, frames.flags.c_contiguous) == (1, np.uint8, True)
    return frames[0]


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("TIFF", {"compression": "packbits", "big_endian": True}),
    ],
)
def test_lossless_formats_give_the_pixels_and_one_digest(
    form: str, options: dict[str, Any]
) -> None:
    media = load(Image(encoded(form, **options)), LIMITS)
    assert (media.frames[0] == PIXELS).all()
    assert (media.kind, media.seconds) == ("image", ())
    assert media.digest == load(Image(encoded("PNG")), LIMITS).digest


@pytest.mark.parametrize("options", [{"quality": 95}, {"quality": 95, "progressive": True}])
def test_a_jpeg_is_close_to_its_pixels(options: dict[str, Any]) -> None:
    smooth = np.linspace(0, 255, 40 * 40).reshape(40, 40, 1).repeat(3, 2).astype(np.uint8)
    found = pixels(encoded("JPEG", pillow.fromarray(smooth), **options))
    assert np.abs(found.astype(int) - smooth).max() < 8


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_exif_says(form: str, orientation: int) -> None:
    exif = pillow.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if form == "WEBP" else {}
    data = encoded(form, pillow.fromarray(CORNERS), exif=exif, **options)
    exact = pillow.open(io.BytesIO(encoded("PNG", pillow.fromarray(CORNERS), exif=exif)))
    shown = np.asarray(pytest.importorskip("PIL.ImageOps").exif_transpose(exact))
    found = pixels(data)
    assert found.shape == shown.shape
    assert np.abs(found.astype(int) - shown)[2:-2:4, 2:-2:4].max() < 40


def test_broken_exif_does_not_spoil_a_picture() -> None:
    data = encoded("JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert pixels(data).shape == PIXELS.shape
    assert (pixels(encoded("PNG", exif=b"Exif\0\0broken")) == PIXELS).all()


def test_transparent_pixels_are_put_over_white() -> None:
    rgba = np.array([[[200, 100, 0, 0], [200, 100, 0, 255], [200, 100, 0, 51]]], np.uint8)
    found = pixels(encoded("PNG", pillow.fromarray(rgba)))
    assert found.tolist() == [[[255, 255, 255], [200, 100, 0], [244, 224, 204]]]
    grey = np.array([[[90, 0], [90, 255]]], np.uint8)
    found = pixels(encoded("PNG", _la(grey)))
    assert found.tolist() == [[[255] * 3, [90] * 3]]
    palette = pillow.fromarray(np.array([[0, 1]], np.uint8))
    palette = palette.convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60])
    found = pixels(encoded("GIF", palette, transparency=0))
    assert found.tolist() == [[[255] * 3, [40, 50, 60]]]
    assert pixels(encoded("PNG", palette)).tolist() == [[[10, 20, 30], [40, 50, 60]]]


def _la(grey: Any) -> Any:
    bands = [pillow.fromarray(np.ascontiguousarray(grey[..., i])) for i in range(2)]
    return pillow.merge("LA", bands)


def test_sixteen_bits_are_rounded_to_eight() -> None:
    values = np.array([[0, 128, 129, 257, 65_407, 65_535]], np.uint16)
    for form in ("PNG", "TIFF"):
        found = pixels(encoded(form, pillow.fromarray(values)))
        assert found[..., 0].tolist() == [[0, 0, 1, 1, 255, 255]]
        assert (found == found[..., :1]).all()
    rows = b"\0" + np.array([[1, 2, 3], [65_535, 256, 255]], ">u2").tobytes()
    found = pixels(png(2, 1, 16, 2, rows))
    assert np.abs(found.astype(int) - [[[0, 0, 0], [255, 1, 1]]]).max() <= 1


def test_grey_bilevel_and_cmyk_become_rgb() -> None:
    assert pixels(encoded("PNG", pillow.new("L", (2, 1), 77))).tolist() == [[[77] * 3] * 2]
    assert pixels(encoded("PNG", pillow.new("1", (2, 1), 1))).tolist() == [[[255] * 3] * 2]
    cyan = pixels(encoded("JPEG", pillow.new("CMYK", (16, 16), (255, 0, 0, 0)), quality=100))
    assert np.abs(cyan.astype(int) - [0, 255, 255]).max() < 4


def test_floating_point_pixels_are_refused() -> None:
    with pytest.raises(InvalidCall, match="8 or 16 bits"):
        pixels(encoded("TIFF", pillow.new("F", (2, 2))))


def png(width: int, height: int, depth: int, colours: int, rows: bytes) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def animated(form: str, num: int = 8, **options: Any) -> tuple[bytes, list[Any]]:
    frames = [np.full((4, 5, 3), index * 30, np.uint8) for index in range(num)]
    images = [pillow.fromarray(it) for it in frames]
    options |= {"save_all": True, "append_images": images[1:], "duration": 200}
    return encoded(form, images[0], **options), frames


@pytest.mark.parametrize(
    ("form", "options"), [("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True})]
)
def test_an_animation_is_its_first_frame_as_a_picture_and_evenly_spaced_ones_as_a_clip(
    form: str, options: dict[str, Any]
) -> None:
    data, frames = animated(form, **options)
    assert (pixels(data) == frames[0]).all()
    clip = load(Video(data, 3), LIMITS)
    assert clip.kind == "video"
    assert [int(it[0, 0, 0]) for it in clip.frames] == [0, 90, 210]
    assert clip.seconds == pytest.approx((0.0, 0.6, 1.4))
    assert len(load(Video(data, 100), LIMITS).frames) == 8


def test_a_picture_is_a_clip_of_one_frame() -> None:
    clip = load(Video(encoded("BMP"), 4), LIMITS)
    assert (clip.frames[0] == PIXELS).all()
    assert (len(clip.frames), clip.seconds) == (1, (0.0,))


def test_limits_name_their_settings() -> None:
    data, (height, width) = encoded("PNG"), PIXELS.shape[:2]
    assert pixels(data, replace(LIMITS, pixels=width * height)).shape == PIXELS.shape
    with pytest.raises(InvalidCall, match=r"9 x 6 pixels: expected at most 53 .*media_pixels"):
        pixels(data, replace(LIMITS, pixels=width * height - 1))
    with pytest.raises(InvalidCall, match=r"at most \d+ bytes \(media_bytes\)"):
        pixels(data, replace(LIMITS, bytes=len(data) - 1))
    moving = animated("GIF")[0]
    with pytest.raises(InvalidCall, match=r"in each of 4 frames.*media_pixels"):
        load(Video(moving, 4), replace(LIMITS, pixels=79))
    with pytest.raises(InvalidCall, match=r"num_frames=9.*1 to 8 \(media_frames\)"):
        load(Video(moving, 9), replace(LIMITS, frames=8))
    with pytest.raises(InvalidCall, match=r"too long.*\(media_seconds\)"):
        pixels(data, replace(LIMITS, seconds=1e-9))
    with pytest.raises(InvalidCall, match="9 frames of 5 x 4 pixels to decode"):
        load(Video(animated("GIF", 9)[0], 2), replace(LIMITS, pixels=40))


def test_without_pillow_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UnsupportedCall, match=r"PIL is not installed: .*images"):
        pixels(encoded("PNG"))


def test_users_of_text_import_neither_pillow_nor_pyav() -> None:
    code = (
        "import sys, forkroot, forkroot.core.media.load, forkroot.core.media.sources;"
        "print(sorted({'PIL', 'av', 'torch'} & {it.partition('.')[0] for it in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
