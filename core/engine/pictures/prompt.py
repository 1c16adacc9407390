"""A prompt with its pictures in place: ids, which of them are features, and rotary positions.

It knows nothing of how pictures are decoded or computed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ...api.batch import Ints, Longs
from ...api.media import FEATURE, Layout, Pixels, rotary_parts
from ...api.protocol import Image, Video
from ...text.pictures import PromptIds

Source: TypeAlias = Image | Video


@dataclass(slots=True, eq=False, weakref_slot=True)
class Picture:
    """A picture or clip as all calls of one tenant and namespace show it.

    key: names its features; those of other namespaces have other names.
    ids: [n] what stands for it in a prompt: token ids, and keys where features go.
    space: within which it is shared. owner, weight: of the tenant whose it is.
    pixels: the tower's input, while it is wanted. is_requested: it is being made.
    error: for which it could not be made.
    """

    key: bytes
    layout: Layout
    ids: Ints
    source: Source
    space: tuple[str, str] = ("", "")
    owner: str = ""
    weight: float = 1.0
    pixels: Pixels | None = None
    is_requested: bool = False
    error: Exception | None = None


class FeatureSpan(NamedTuple):
    """Tokens start:end of a prompt that are features of a picture, the first of them its feature
    number `offset`."""

    start: int
    end: int
    offset: int
    picture: Picture


class Filled(NamedTuple):
    """A prompt in which all pictures stand. spans: ascending. parts: [3, n] rotary positions of
    models that have three, or None."""

    ids: list[int]
    spans: tuple[FeatureSpan, ...] = ()
    parts: Longs | None = None

    @property
    def end_of_features(self) -> int:
        """Tokens up to the last feature."""
        return self.spans[-1].end if self.spans else 0


def fill(prompt: PromptIds, pictures: Sequence[Picture]) -> Filled:
    """The prompt with these pictures for its placeholders, in order."""
    if not prompt.placeholders:
        return Filled(prompt.ids)
    ids = prompt.filled([picture.ids.tolist() for picture in pictures])
    spans: list[FeatureSpan] = []
    starts: list[int] = []
    shift = 0
    for place, picture in zip(prompt.placeholders, pictures, strict=True):
        starts.append(place.index + shift)
        spans += _spans(picture, starts[-1])
        shift += len(picture.ids) - 1
    layouts = [picture.layout for picture in pictures]
    return Filled(ids, tuple(spans), rotary_parts(len(ids), starts, layouts))


def spans_from(spans: Sequence[FeatureSpan], start: int) -> int:
    """The index of the first span that ends after `start` tokens."""
    return bisect_right(spans, start, key=lambda span: span.end)


def rotary_positions(parts: Longs | None, start: int, end: int) -> Longs:
    """[3, end - start] the positions of tokens start:end. parts: as in `Filled`; tokens behind
    these follow the largest of them one by one."""
    count = 0 if parts is None else parts.shape[1]
    following = np.arange(max(start, count), max(end, count), dtype=np.int64)
    if parts is None:
        return np.tile(following, (3, 1))
    following += int(parts.max(initial=-1)) + 1 - count
    return np.concatenate((parts[:, start:end], np.tile(following, (3, 1))), axis=1)


def _spans(picture: Picture, start: int) -> list[FeatureSpan]:
    """Where its features are, if it stands at `start`."""
    is_feature = np.concatenate(([False], picture.layout.ids == FEATURE, [False]))
    edges = np.flatnonzero(is_feature[1:] != is_feature[:-1]).reshape(-1, 2).tolist()
    spans, offset = [], 0
    for first, last in edges:
        spans.append(FeatureSpan(start + first, start + last, offset, picture))
        offset += last - first
    return spans
