"""Clips by PyAV: encoded bytes to evenly spaced RGB frames, within limits.

What a file's header says of its length is not believed: all packets are read first, which takes
microseconds each, and only the frames that are wanted are decoded, from the keyframe before each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..api.media import Frames
from .containers import CLIPS
from .limits import Clock, MediaLimits, TimedFile, check_size, decoding, optional, refused
from .pictures import spaced, stacked

_CODECS = ("h264", "hevc", "vp8", "vp9", "libvpx", "libvpx-vp9", "av1", "libdav1d", "mpeg4")
_MOST_PACKETS = 1 << 18  # hours
_MOST_STREAMS = 16


class _Index(NamedTuple):
    """When the frames of a clip are shown, ascending, in units of its time base. keys: those that
    can be decoded without any other."""

    times: list[int]
    keys: list[int]


def clip(
    data: bytes, form: str, num: int, limits: MediaLimits, clock: Clock
) -> tuple[Frames, tuple[float, ...]]:
    """[frames, height, width, 3] at most `num` frames, evenly spaced, and when each is shown, in
    seconds after the first of the clip. form: of CLIPS. Raises InvalidCall."""
    av = optional("av", "a clip", "video")
    options = {
        "codec_whitelist": ",".join(_CODECS),
        "max_streams": str(_MOST_STREAMS),
        "protocol_whitelist": "none",
    }
    file = TimedFile(data, clock)
    with (
        decoding(f"{form} data", clock),
        av.open(file, format=CLIPS[form], options=options) as container,
    ):
        stream = _track(container, form)
        stream.codec_context.thread_count = 1  # so that this thread's time counts
        stream.codec_context.options = {"max_pixels": str(limits.pixels)}
        index = _index(container, stream, clock)
        times = [index.times[it] for it in spaced(len(index.times), num)]
        check_size(stream.codec_context.width, stream.codec_context.height, limits, len(times))
        found: list[Frames] = []
        seconds: list[float] = []
        for frame in _frames(container, stream, times, index.keys, clock):
            check_size(frame.width, frame.height, limits, len(times))
            found.append(np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90)))
            seconds.append(round(float((_time(frame) - index.times[0]) * stream.time_base), 6))
        if not found:
            raise refused(f"{form} data without a frame that can be decoded", "a whole file")
        return stacked(found), tuple(seconds)


def _track(container: Any, form: str) -> Any:
    """The first video track."""
    if len(container.streams) > _MOST_STREAMS:
        found = f"{form} data of {len(container.streams)} tracks"
        raise refused(found, f"at most {_MOST_STREAMS}")
    if not container.streams.video:
        raise refused(f"{form} data without a video track", "a clip")
    stream = container.streams.video[0]
    name = None if stream.codec_context is None else stream.codec_context.name
    if name not in _CODECS:
        raise refused(f"a clip of codec {name}", "H.264, HEVC, VP8, VP9, AV1 or MPEG-4")
    return stream


def _index(container: Any, stream: Any, clock: Clock) -> _Index:
    times: list[int] = []
    keys: list[int] = []
    for packet in container.demux(stream):
        clock.check()
        at = _time(packet)
        if packet.size == 0 or packet.is_discard or at is None:
            continue
        if packet.is_corrupt:
            raise refused("a clip that ends too early", "a whole file")
        if len(times) >= _MOST_PACKETS:
            raise refused("a clip of too many frames", f"at most {_MOST_PACKETS}")
        times.append(at)
        if packet.is_keyframe:
            keys.append(at)
    clock.check()
    if not times:
        raise refused("a clip without a frame", "a clip of at least one")
    return _Index(sorted(times), sorted(keys))


def _frames(
    container: Any, stream: Any, times: Sequence[int], keys: list[int], clock: Clock
) -> Iterator[Any]:
    """The frames that are shown at these times."""
    at: int | None = None
    decoded: Iterator[Any] = iter(())
    for wanted in times:
        if at is None or bisect_right(keys, wanted) > bisect_right(keys, at):
            container.seek(wanted, stream=stream)
            decoded = container.decode(stream)
        for frame in decoded:
            clock.check()
            at = _time(frame)
            if at is not None and at >= wanted:
                clock.grant(frame.width * frame.height)
                yield frame
                break
            clock.grant(frame.width * frame.height)


def _time(of: Any) -> Any:
    """Of a packet or frame, in units of the time base; None: it has none."""
    return of.dts if of.pts is None else of.pts
