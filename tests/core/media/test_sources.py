"""What users hold becomes encoded bytes: equal pixels give equal pictures."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forkroot.adapters.native import image, video
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Image, InvalidCall, UnsupportedCall, Video
from forkroot.core.media.limits import MediaLimits
from forkroot.core.media.load import load
from forkroot.core.media.sources import from_base64, from_url, image_data, video_data

LIMITS = MediaLimits.of(EngineConfig())
FRAMES = np.random.default_rng(0).integers(0, 256, (5, 7, 9, 3), np.uint8)
PNG = image_data(FRAMES[0])
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def test_bytes_files_and_data_urls_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    for source in (PNG, bytearray(PNG), memoryview(PNG), path, str(path), URL):
        assert image_data(source) == PNG
        assert image(source) == image(PNG)
    clip = "data:video/mp4;base64," + base64.b64encode(b"clip").decode()
    assert video_data(clip) == b"clip"
    assert video(clip, 3) == video(b"clip", 3)


def test_equal_pixels_have_equal_digests_whatever_holds_them() -> None:
    pillow = pytest.importorskip("PIL.Image")
    held = (FRAMES[0], FRAMES[0][:, ::-1][:, ::-1], pillow.fromarray(FRAMES[0]), URL)
    found = [load(Image(image_data(it)), LIMITS) for it in held]
    assert all((it.frames[0] == FRAMES[0]).all() for it in found)
    assert len({it.digest for it in found}) == 1


def test_an_image_of_pillow_becomes_what_its_file_would() -> None:
    pillow = pytest.importorskip("PIL.Image")
    turned = pillow.fromarray(FRAMES[0])
    turned.info["exif"] = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    found = load(Image(image_data(turned)), LIMITS)
    assert (found.frames[0] == np.rot90(FRAMES[0], 3)).all()
    cyan = load(Image(image_data(pillow.new("CMYK", (2, 2), (255, 0, 0, 0)))), LIMITS)
    assert cyan.frames[0, 0, 0].tolist() == [0, 255, 255]
    clear = load(Image(image_data(pillow.new("RGBA", (2, 2), (9, 9, 9, 0)))), LIMITS)
    assert clear.frames[0, 0, 0].tolist() == [255, 255, 255]


def test_frames_become_a_clip_without_loss() -> None:
    pillow = pytest.importorskip("PIL.Image")
    images = [pillow.fromarray(it) for it in FRAMES]
    for source in (FRAMES, list(FRAMES), tuple(FRAMES), images):
        found = load(Video(video_data(source), 99), LIMITS)
        assert (found.frames == FRAMES).all()
        assert found.seconds == (0.0, 1.0, 2.0, 3.0, 4.0)
    three = load(Video(video_data(FRAMES), 3), LIMITS)
    assert (three.frames == FRAMES[[0, 2, 4]]).all()
    one = load(Video(video_data(FRAMES[:1]), 3), LIMITS)
    assert (one.frames == FRAMES[:1]).all()


@pytest.mark.parametrize(
    "source",
    [
        *(None, 3, [], object(), "", "no/such/file.png", "/dev/zero", "\0"),
        FRAMES[0].astype(np.float32),
        FRAMES[0][..., :2],
        FRAMES[0][..., 0],
        FRAMES[0][:0],
        FRAMES,
        "data:image/png,plain",
        "data:text/html;base64,aGk=",
        "data:video/mp4;base64,aGk=",
        "data:image/png;base64,a*b",
        "data:image/png;base64,aGk",
        "data:image/png;base64,",
        "data:image/png;base64,aGk=\n",
    ],
)
def test_what_is_no_picture_is_refused(source: Any) -> None:
    with pytest.raises(InvalidCall) as caught:
        image_data(source)
    assert caught.value.field == "source"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "source", [[], FRAMES[0], [FRAMES[0], FRAMES[1][:3]], [1, 2], [b"png"], FRAMES[:0], "a.mp4"]
)
def test_what_is_no_clip_is_refused(source: Any) -> None:
    with pytest.raises(InvalidCall) as caught:
        video_data(source)
    assert caught.value.field == "source"


@pytest.mark.parametrize(
    "url", ["http://a.example/a.png", "https://a.example/a.png", "file:///etc/passwd", "ftp://a/b"]
)
def test_urls_are_not_fetched(url: str) -> None:
    with pytest.raises(UnsupportedCall, match="nothing is fetched"):
        image_data(url)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidCall, match="readable file"):
        image_data(tmp_path / "pipe")


def test_errors_of_urls_name_the_field_of_the_caller() -> None:
    with pytest.raises(InvalidCall, match=r"invalid part\.url=.*data:image/TYPE;base64"):
        from_url("data:image/png;base64;a", "image", "part.url")
    assert from_url("DATA:image/svg+xml;charset=utf-8;base64,aGk=", "image", "x") == b"hi"
    assert from_url("data:application/octet-stream;base64,aGk=", "video", "x") == b"hi"
    with pytest.raises(InvalidCall, match="image_data"):
        from_base64("é", "image_data")
    for url in ("https://example.org/a.png", "file:///etc/passwd", ""):
        with pytest.raises(UnsupportedCall, match=r"part\.url=.*: nothing is fetched"):
            from_url(url, "image", "part.url")
    for given in (None, b"png", 7, "data:image/png,abc", "data:image/png;base64,"):
        with pytest.raises(InvalidCall, match=r"part\.url"):
            from_url(given, "image", "part.url")
    with pytest.raises(InvalidCall) as caught:
        from_url("data:image/png;base64,?" + "A" * 100_000, "image", "part.url")
    assert len(str(caught.value)) < 300
