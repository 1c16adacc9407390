"""Parts of a request that are pictures or clips, as segments of a prompt.

`image_url` and `video_url` of OpenAI's chats, `input_image` of its responses, and the texts that
SGLang's clients send. A model that takes no pictures gets none: its routes refuse the parts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from ....core.api.media import Kind
from ....core.api.protocol import (
    Image,
    InvalidCall,
    Segment,
    Shown,
    Text,
    UnsupportedCall,
    Video,
)
from ....core.media.sources import from_base64, from_url
from ..server.runtime import Runtime

KINDS: Mapping[str, Kind] = {"image_url": "image", "input_image": "image", "video_url": "video"}
MARKERS: Mapping[str, Kind] = {  # in texts of SGLang's clients, as chat templates write them
    "<image>": "image",
    "<video>": "video",
    "<|vision_start|><|image_pad|><|vision_end|>": "image",
    "<|vision_start|><|video_pad|><|vision_end|>": "video",
    "<start_of_image>": "image",
    "<|image|>": "image",
}
_MARKER = re.compile("|".join(map(re.escape, MARKERS)))
NUM_FRAMES = 32  # of a clip, where a request names none
_MOST_URLS = 32  # that are fetched for one request
_DETAILS = (None, "auto", "low", "high", "original")
_URL = "a data: URL in base64"


class _Named(NamedTuple):
    """What a part names. field: of its URL."""

    kind: Kind
    url: str
    field: str
    num_frames: int = NUM_FRAMES


@dataclass(frozen=True, slots=True)
class MediaParts:
    """How the parts of one request are read. accepts: whether the model takes pictures. fetched:
    what was found at each http(s) URL of the request."""

    accepts: bool = False
    fetched: Mapping[str, bytes] = field(default_factory=dict)

    def segment(self, part: Mapping[str, Any], field: str) -> Image | Video:
        """The picture or clip of a part whose type is in KINDS. Raises InvalidCall."""
        return self._segment(_named(part, field))

    def of_text(self, text: object, kind: Kind, field: str) -> Image | Video:
        """The picture or clip that SGLang's clients send as text: a URL, or base64. Raises
        InvalidCall."""
        if not isinstance(text, str):
            raise InvalidCall(field, text, f"{_URL}, or base64")
        is_url = _is_fetched(text) or text[:5].lower() in ("data:", "file:")
        if is_url:
            return self._segment(_Named(kind, text, field))
        return _made(kind, from_base64(text, field, f"{_URL}, or base64; no path of a file"))

    def _segment(self, named: _Named) -> Image | Video:
        data = self.fetched.get(named.url)
        if data is None and named.url[:5].lower() != "data:":
            raise UnsupportedCall(named.field, Shown(repr(named.url[:80])), _URL)
        if data is None:
            data = from_url(named.url, named.kind, named.field)
        return _made(named.kind, data, named.num_frames)


NO_MEDIA = MediaParts()


async def media_parts(runtime: Runtime, contents: Iterable[tuple[str, object]]) -> MediaParts:
    """How the media of these contents of messages are read; http(s) URLs are fetched, all at once.
    contents: with their fields. Raises InvalidCall for a part or URL that is not allowed."""
    found = [
        (f"{field}[{index}]", part)
        for field, content in contents
        if isinstance(content, list)
        for index, part in enumerate(content)
        if isinstance(part, Mapping) and part.get("type") in KINDS
    ]
    if not found or not await takes_images(runtime):
        return NO_MEDIA
    return await _with_fetched(runtime, [_named(part, field) for field, part in found])


async def media_texts(runtime: Runtime, texts: Iterable[tuple[str, Kind, object]]) -> MediaParts:
    """As `media_parts`, of what SGLang's clients send: fields, kinds and texts."""
    named = [_Named(kind, it, field) for field, kind, it in texts if isinstance(it, str)]
    if not named or not await takes_images(runtime):
        return NO_MEDIA
    return await _with_fetched(runtime, named)


async def takes_images(runtime: Runtime) -> bool:
    """Whether the model takes pictures."""
    info = await asyncio.to_thread(runtime.backend.info)
    return "images" in info.features


async def _with_fetched(runtime: Runtime, named: list[_Named]) -> MediaParts:
    wanted = {it.url: it for it in named if _is_fetched(it.url)}
    if len(wanted) > _MOST_URLS:
        first = next(iter(wanted.values()))
        raise InvalidCall(first.field, Shown(f"{len(wanted)} URLs"), f"at most {_MOST_URLS}")
    tasks = [
        asyncio.ensure_future(runtime.fetcher.fetch(it.url, it.kind, it.field))
        for it in wanted.values()
    ]
    try:
        return MediaParts(True, dict(zip(wanted, await asyncio.gather(*tasks), strict=True)))
    finally:
        for task in tasks:
            task.cancel()


def interleaved(text: str, media: Sequence[Image | Video], field: str) -> tuple[Segment, ...]:
    """A text with each picture or clip where it has one of MARKERS, or all before a text that has
    none. Raises InvalidCall(field) for another number of them than of markers, or another order."""
    pieces = _MARKER.split(text)
    if len(pieces) == 1:
        return (*media, Text(text)) if text else tuple(media)
    marked = [MARKERS[it] for it in _MARKER.findall(text)]
    if marked != ["image" if isinstance(it, Image) else "video" for it in media]:
        found = Shown(f"{len(media)} beside a text with {len(marked)} markers")
        raise InvalidCall(field, found, "one for each marker, as <image> or <video>, in order")
    pairs = zip_longest(map(Text, pieces), media)
    return tuple(it for pair in pairs for it in pair if it is not None and it != Text(""))


def _named(part: Mapping[str, Any], field: str) -> _Named:
    """What a part names. Raises InvalidCall."""
    kind = KINDS[part["type"]]
    name = "image_url" if kind == "image" else "video_url"
    given, place = part.get(name), f"{field}.{name}"
    inner = given if isinstance(given, Mapping) else {"url": given}
    url = inner.get("url")
    if not isinstance(url, str):
        raise InvalidCall(place, given, f'an object {{"url": ...}} or a text: {_URL}')
    place += ".url" * isinstance(given, Mapping)
    detail = part.get("detail") if inner is not given else inner.get("detail")
    if detail not in _DETAILS:
        raise InvalidCall(f"{field}.detail", detail, "auto, low, high, or null")
    num = inner.get("num_frames", NUM_FRAMES)
    if type(num) is not int or num < 1:
        raise InvalidCall(f"{field}.{name}.num_frames", num, "an integer >= 1")
    return _Named(kind, url, place, num)


def _is_fetched(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))


def _made(kind: Kind, data: bytes, num_frames: int = NUM_FRAMES) -> Image | Video:
    return Image(data) if kind == "image" else Video(data, num_frames)
