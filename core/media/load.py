"""From a segment of a prompt to its pixels. All pictures and clips come in here."""

from __future__ import annotations

import os
import threading

from ..api.media import Media
from ..api.protocol import Image, InvalidCall, Video
from .clips import clip
from .containers import CLIPS, PICTURES, format_of
from .limits import Clock, MediaLimits, refused
from .pictures import animation, picture

_AT_ONCE = threading.BoundedSemaphore(max(2, min(8, os.cpu_count() or 1)))  # bounds memory
_FORMATS = f"a file of one of the formats {', '.join(PICTURES)}"


def load(segment: Image | Video, limits: MediaLimits) -> Media:
    """Decode a picture or clip, in the caller's thread; may be called from any, and waits while
    others decode.

    A picture's first frame if it is animated. Of a clip, `num_frames` evenly spaced frames
    (`numpy.linspace` over their indices, the first and the last included), or all where there are
    fewer; a picture or an animation may be a clip. Equal pixels have equal digests, whatever format
    they came in.

    Raises InvalidCall("prompt") for what is broken, too large or takes too long, and
    UnsupportedCall where Pillow, or PyAV for a clip, is not installed.
    """
    data = segment.data
    if len(data) > limits.bytes:
        found = f"a file of {len(data)} bytes"
        raise refused(found, f"at most {limits.bytes} bytes (media_bytes)")
    form = format_of(data)
    with _AT_ONCE:
        if isinstance(segment, Image):
            return _picture(data, form, limits)
        return _clip(segment, form, limits)


def _picture(data: bytes, form: str | None, limits: MediaLimits) -> Media:
    if form in CLIPS:
        raise refused(f"a picture in {form} data", f"{_FORMATS}, or a video")
    if form is None:
        raise refused(_unknown(data), _FORMATS)
    return Media.of("image", picture(data, form, limits, Clock(limits)))


def _clip(segment: Video, form: str | None, limits: MediaLimits) -> Media:
    num = segment.num_frames
    if type(num) is not int or not 1 <= num <= limits.frames:
        raise InvalidCall("num_frames", num, f"an integer from 1 to {limits.frames} (media_frames)")
    if form is None:
        allowed = f"a file of one of the formats {', '.join((*CLIPS, *PICTURES))}"
        raise refused(_unknown(segment.data), allowed)
    read = clip if form in CLIPS else animation
    return Media.of("video", *read(segment.data, form, num, limits, Clock(limits)))


def _unknown(data: bytes) -> str:
    return f"a file that begins with {data[:8]!r}" if data else "an empty file"
