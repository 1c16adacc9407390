"""What decoding a picture or clip may cost, the processor time that it took, and its errors."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from ..api.config import EngineConfig
from ..api.protocol import InvalidCall, Shown, UnsupportedCall
from ..common.extras import how_to_install

MAX_SIDE = 65_535  # pixels
_STALLED = 0.5  # processor seconds, at most, between two frames
_PER_PIXEL = 5e-8  # processor seconds more for a pixel: several times what any format takes


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Limits of one picture or clip: the settings of EngineConfig that begin with `media_`."""

    bytes: int
    pixels: int
    frames: int
    seconds: float

    @classmethod
    def of(cls, config: EngineConfig) -> MediaLimits:
        """The limits of an engine."""
        sizes = config.media_bytes, config.media_pixels, config.media_frames
        return cls(*sizes, config.media_seconds)


class Clock:
    """The processor time of this thread that decoding may still take. Mutable: each frame that is
    decoded gives some more, up to `limits.seconds` in all."""

    def __init__(self, limits: MediaLimits) -> None:
        self._seconds = limits.seconds
        now = time.thread_time()
        self._last = now + limits.seconds
        self._end = min(now + _STALLED, self._last)

    def grant(self, pixels: int) -> None:
        """Time for the next frame, of so many pixels."""
        now = time.thread_time()
        self._end = min(now + _STALLED + _PER_PIXEL * pixels, self._last)

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.thread_time() > self._end

    def check(self) -> None:
        """Raise InvalidCall if the time is over."""
        if self.is_over:
            found = "a file that takes too long to decode"
            raise refused(found, f"one that takes {self._seconds:g} s at most (media_seconds)")


class TimedFile(io.BytesIO):
    """A file in memory that ends when the time is over."""

    def __init__(self, data: bytes, clock: Clock) -> None:
        super().__init__(data)
        self._clock = clock

    def read(self, size: int | None = -1, /) -> bytes:
        """As in BytesIO."""
        return b"" if self._clock.is_over else super().read(size)


def refused(found: str, allowed: str) -> InvalidCall:
    """The error for a picture or clip. found: what it is, in words."""
    return InvalidCall("prompt", Shown(found), allowed)


@contextmanager
def decoding(what: str, clock: Clock) -> Iterator[None]:
    """Whatever a decoder raises in here, for a file that is broken or took too long, becomes
    InvalidCall."""
    try:
        yield
    except InvalidCall:
        raise
    except Exception as error:  # decoders raise errors of every kind
        clock.check()
        text = str(error)
        if type(error).__name__.startswith("DecompressionBomb"):  # of Pillow
            raise refused(f"{what} of too many pixels", "fewer (media_pixels)") from error
        reason = type(error).__name__ if "<" in text or not text else text
        found = f"{what} that cannot be decoded ({reason:.80})"
        raise refused(found, "a whole file, not a damaged one") from error


def check_size(width: int, height: int, limits: MediaLimits, num: int = 1) -> None:
    """Raise InvalidCall for frames that are too large. num: how many are wanted."""
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise refused(f"{width} x {height} pixels", f"1 to {MAX_SIDE} pixels a side")
    if width * height * num > limits.pixels:
        found = f"{width} x {height} pixels" + f" in each of {num} frames" * (num > 1)
        raise refused(found, f"at most {limits.pixels} pixels in all (media_pixels)")


def optional(module: str, what: str, extra: str) -> ModuleType:
    """A module that an extra installs. Raises UnsupportedCall without it."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        allowed = f"text, as {name} is not installed: {how_to_install(extra)}"
        raise UnsupportedCall("prompt", Shown(what), allowed) from error
