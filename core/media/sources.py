"""What users hold (bytes, paths, data: URLs, Pillow's images, arrays, frames) as encoded bytes.

Nothing is fetched; numpy and Pillow are imported only for pixels. Files are read here and now.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..api.protocol import InvalidCall, Shown, UnsupportedCall
from .limits import MAX_SIDE

if TYPE_CHECKING:
    from ..api.media import Frames, Kind

Source: TypeAlias = bytes | bytearray | memoryview | str | PathLike[str] | Any
_IMAGE = (
    "bytes, the path of a readable file, a data: URL, an image of Pillow, or an array of uint8"
    " [height, width, 3]"
)
_VIDEO = (
    "bytes, the path of a readable file, a data: URL, a list of one or more images, or an array of"
    " uint8 [frames, height, width, 3]"
)
_URL = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,", re.IGNORECASE)
_SHOWN = 40  # characters of a URL in an error


def image_data(source: Source) -> bytes:
    """The encoded bytes of a picture. Pixels become a PNG file: equal ones give equal pictures.
    Raises InvalidCall("source")."""
    data = _encoded(source, "image", _IMAGE)
    return _png([_frame(source, _IMAGE)]) if data is None else data


def video_data(source: Source) -> bytes:
    """The encoded bytes of a clip. Frames become an animated PNG file, each shown for a second.
    Raises InvalidCall("source")."""
    data = _encoded(source, "video", _VIDEO)
    if data is not None:
        return data
    given: Any = source
    is_list = isinstance(given, Sequence) or getattr(given, "ndim", 0) == 4
    frames = [_frame(it, _VIDEO) for it in given] if is_list else []
    if not frames or any(it.shape != frames[0].shape for it in frames):
        raise InvalidCall("source", _shown(source), f"{_VIDEO}, all of one size")
    return _png(frames)


def from_url(url: object, kind: Kind, field: str) -> bytes:
    """The bytes in a data: URL of pictures or clips. Raises InvalidCall(field); UnsupportedCall for
    a URL of another kind."""
    allowed = f"data:{kind}/TYPE;base64,... in plain base64"
    if not isinstance(url, str):
        raise InvalidCall(field, url, allowed)
    if url[:5].lower() != "data:":
        raise UnsupportedCall(field, Shown(repr(url[:_SHOWN])), f"{allowed}: nothing is fetched")
    head = _DATA_URL.match(url[:256])
    if head is None or head[1].partition("/")[0].lower() not in (kind, "application"):
        raise InvalidCall(field, Shown(repr(url[:_SHOWN])), allowed)
    return from_base64(url[head.end() :], field, allowed)


def from_base64(text: str, field: str, allowed: str = "plain base64") -> bytes:
    """The bytes in base64 text. Raises InvalidCall(field) for any other character, and for none."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCall(field, Shown(f"text that is not base64 ({error})"), allowed) from None
    if not data:
        raise InvalidCall(field, "", allowed)
    return data


def _encoded(source: Source, kind: Kind, allowed: str) -> bytes | None:
    """The bytes of what is encoded; None for pixels."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str) and source[:5].lower() == "data:":
        return from_url(source, kind, "source")
    if isinstance(source, str) and _URL.match(source) and not Path(source).is_file():
        allowed = f"{allowed}: nothing is fetched"
        raise UnsupportedCall("source", Shown(repr(source[:_SHOWN])), allowed)
    if not isinstance(source, str | PathLike):
        return None
    try:
        # not a FIFO or a device, which may never end
        with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidCall("source", source, allowed)
            return file.read()
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidCall):
            raise
        raise InvalidCall("source", source, allowed) from error


def _png(frames: list[Frames]) -> bytes:
    from .encode import png

    return png(frames)


def _frame(source: Any, allowed: str) -> Frames:
    """[height, width, 3] of an image of Pillow, an array, or what `image_data` takes and Pillow
    reads."""
    if hasattr(source, "getbands"):
        from .pictures import oriented

        try:
            return oriented(source)
        except (OSError, ValueError) as error:
            raise InvalidCall("source", Shown(f"an image ({error})"), allowed) from error
    import numpy as np

    found = np.asarray(source) if hasattr(source, "__array__") else None
    if (
        found is None
        or found.dtype != np.uint8
        or found.ndim != 3
        or found.shape[2] != 3
        or not (1 <= found.shape[0] <= MAX_SIDE and 1 <= found.shape[1] <= MAX_SIDE)
    ):
        raise InvalidCall("source", _shown(source), allowed)
    return np.ascontiguousarray(found)


def _shown(source: Any) -> object:
    if hasattr(source, "dtype") and hasattr(source, "shape"):
        return Shown(f"an array of {source.dtype} {list(source.shape)}")
    is_short = source is None or isinstance(source, str | int)
    return source if is_short else Shown(f"a {type(source).__name__}")
