"""Pictures and animations by Pillow: encoded bytes to RGB, within limits.

Rotated as Exif says, transparent pixels over white, 16 bits rounded to 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..api.media import Frames
from .containers import ANIMATIONS, orientation_of, pixels_only
from .limits import Clock, MediaLimits, TimedFile, check_size, decoding, optional, refused

_TURNS = {2: (0, 1), 3: (2, 0), 4: (2, 1), 5: (3, 1), 6: (3, 0), 7: (1, 1), 8: (1, 0)}
_WHITE = (255, 255, 255)
_MOST_FRAMES = 1 << 16  # of an animation
_DECODED = 4  # times `media_pixels`: the frames before the last that is wanted are decoded, too
_LEAST_DELAY, _USUAL_DELAY = 20, 100  # milliseconds: browsers show shorter ones as the usual one


def picture(data: bytes, form: str, limits: MediaLimits, clock: Clock) -> Frames:
    """[1, height, width, 3] the picture, or the first frame of an animation. form: of PICTURES.
    Raises InvalidCall."""
    image, orientation = _opened(data, form, limits, clock, frames=False)
    with decoding(f"{form} data", clock):
        clock.grant(image.width * image.height)
        return _turned(rgb(image), orientation)[None]


def animation(
    data: bytes, form: str, num: int, limits: MediaLimits, clock: Clock
) -> tuple[Frames, tuple[float, ...]]:
    """[frames, height, width, 3] at most `num` frames, evenly spaced, and when each is shown, in
    seconds. A picture that does not move is one frame. Raises InvalidCall."""
    image, orientation = _opened(data, form, limits, clock, frames=form in ANIMATIONS)
    found: list[Frames] = []
    seconds: list[float] = []
    elapsed = 0
    with decoding(f"{form} data", clock):
        wanted = _wanted(image, form, num, limits)
        for index in range(wanted[-1] + 1):
            clock.check()
            image.seek(index)
            check_size(image.width, image.height, limits, len(wanted))
            clock.grant(image.width * image.height)
            if index in wanted:
                found.append(_turned(rgb(image), orientation))
                seconds.append(elapsed / 1000)
            else:
                image.load()
            delay = image.info.get("duration", 0)
            elapsed += delay if delay >= _LEAST_DELAY else _USUAL_DELAY
        return stacked(found), tuple(seconds)


def _wanted(image: Any, form: str, num: int, limits: MediaLimits) -> list[int]:
    """Which frames are taken. Raises InvalidCall where too many would be decoded."""
    total = getattr(image, "n_frames", 1) if form in ANIMATIONS else 1
    if not 1 <= total <= _MOST_FRAMES:
        raise refused(f"an animation of {total} frames", f"1 to {_MOST_FRAMES}")
    wanted = spaced(total, num)
    check_size(image.width, image.height, limits, len(wanted))
    num_decoded, most = wanted[-1] + 1, _DECODED * limits.pixels
    if num_decoded * image.width * image.height > most:
        text = f"{num_decoded} frames of {image.width} x {image.height} pixels to decode"
        raise refused(text, f"at most {most} pixels, {_DECODED} times media_pixels")
    return wanted


def rgb(image: Any) -> Frames:
    """[height, width, 3] the pixels of one of Pillow's images, over white; not turned. Raises
    ValueError for a mode without a meaning as colour."""
    image.load()
    if image.mode in ("I", "F") and image.format != "PNG":
        raise ValueError(f"its mode is {image.mode}; expected 8 or 16 bits for each channel")
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _grey16(image)
    if image.has_transparency_data:
        from PIL import Image

        image = image.convert("RGBA")
        base = Image.new("RGB", image.size, _WHITE)
        base.paste(image, mask=image.getchannel("A"))
        image = base
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"), np.uint8)


def stacked(frames: list[Frames]) -> Frames:
    """[frames, height, width, 3] Raises InvalidCall for frames of several sizes."""
    if any(it.shape != frames[0].shape for it in frames):
        raise refused("frames of several sizes", "frames of one size")
    return np.stack(frames)


def spaced(total: int, num: int) -> list[int]:
    """The indices of `num` of `total` frames, evenly spaced from the first to the last; all of
    them, where there are no more."""
    return [int(it) for it in np.linspace(0, total - 1, min(num, total)).astype(int)]


def oriented(image: Any) -> Frames:
    """[height, width, 3] as `rgb`, turned as Exif says."""
    return _turned(rgb(image), orientation_of(image.info.get("exif", b"")))


def _opened(
    data: bytes, form: str, limits: MediaLimits, clock: Clock, *, frames: bool
) -> tuple[Any, int]:
    """Pillow's image, of a size that is allowed, before its pixels are decoded; its orientation."""
    pil = optional("PIL.Image", "a picture", "images")
    optional(f"PIL.{_PLUGINS.get(form, form.title())}ImagePlugin", "a picture", "images")
    file = pixels_only(data, form, limits, frames=frames)
    with decoding(f"{form} data", clock):
        image = pil.open(TimedFile(file.data, clock), formats=(form,))
        check_size(image.width, image.height, limits)
    exif = image.info.get("exif", b"") if form == "WEBP" else b""
    return image, orientation_of(exif) if exif else file.orientation


_PLUGINS = {"WEBP": "WebP"}


def _grey16(image: Any) -> Frames:
    values: npt.NDArray[Any] = np.asarray(image).astype(np.int64).clip(0, 65_535)
    grey = ((values * 255 + 32_767) // 65_535).astype(np.uint8)
    if "transparency" in image.info:
        grey = np.where(values == image.info["transparency"], np.uint8(255), grey)
    return np.repeat(grey[..., None], 3, axis=2)


def _turned(frame: Frames, orientation: int) -> Frames:
    """The frame as its orientation, of Exif, says it is shown."""
    quarters, is_mirrored = _TURNS.get(orientation, (0, 0))
    turned = np.rot90(frame, quarters)
    return turned[:, ::-1] if is_mirrored else turned
