"""Clips become evenly spaced frames with their times; files made to harm end in typed errors."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Image, InvalidCall, UnsupportedCall, Video
from forkroot.core.media.limits import MediaLimits
from forkroot.core.media.load import load

pytest.importorskip("PIL.Image")
LIMITS = MediaLimits.of(EngineConfig())


@pytest.mark.filterwarnings("ignore")  # Pillow warns of what is broken
def test_files_made_to_harm_are_read_or_refused_as_expected() -> None:
    from forkroot.benchmarks.media.hostile import endings

    has_clips = find_spec("av") is not None
    found = list(endings(0, has_clips=has_clips))
    assert len(found) >= (130 if has_clips else 60)
    assert [it for it in found if not it.is_expected] == []


def test_without_pyav_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnsupportedCall, match=r"av is not installed: .*video"):
        load(Video(b"\0\0\0\x18ftypisom" + bytes(16), 2), LIMITS)


@pytest.mark.parametrize(
    ("form", "codec"),
    [
        ("mp4", "libx264"),
        ("mov", "libx265"),
        ("matroska", "libx264"),
        ("webm", "libvpx-vp9"),
        ("avi", "mpeg4"),
    ],
)
@pytest.mark.parametrize("num", [1, 2, 5, 30, 99])
def test_frames_of_a_clip_are_evenly_spaced(form: str, codec: str, num: int) -> None:
    pytest.importorskip("av")
    from forkroot.benchmarks.media.clips import FRAMES, RATE, clip

    found = load(Video(clip(form, codec), num), LIMITS)
    wanted = np.linspace(0, FRAMES - 1, min(num, FRAMES)).astype(int)
    assert found.kind == "video"
    assert found.frames.shape == (len(wanted), 48, 64, 3)
    assert np.abs(found.frames[:, 24, 32, 0].astype(int) - wanted * 8).max() <= 4
    assert found.seconds == pytest.approx([it / RATE for it in wanted], abs=0.002)


def test_a_clip_is_turned_as_its_track_says() -> None:
    pytest.importorskip("av")
    from forkroot.benchmarks.media.clips import clip, patched

    quarter = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)
    found = load(Video(patched(clip(), b"tkhd", 40, quarter), 2), LIMITS)
    assert found.frames.shape == (2, 64, 48, 3)


def test_limits_of_clips_name_their_settings() -> None:
    pytest.importorskip("av")
    from forkroot.benchmarks.media.clips import clip

    assert len(load(Video(clip(), 4), replace(LIMITS, pixels=64 * 48 * 4)).frames) == 4
    with pytest.raises(InvalidCall, match=r"64 x 48 pixels in each of 4 frames.*media_pixels"):
        load(Video(clip(), 4), replace(LIMITS, pixels=64 * 48 * 4 - 1))
    with pytest.raises(InvalidCall, match=r"at most \d+ bytes \(media_bytes\)"):
        load(Video(clip(), 4), replace(LIMITS, bytes=1000))
    with pytest.raises(InvalidCall, match=r"too long.*media_seconds"):
        load(Video(clip(), 4), replace(LIMITS, seconds=1e-9))
    with pytest.raises(InvalidCall, match=r"a picture in MP4 data.*or a video"):
        load(Image(clip()), LIMITS)
