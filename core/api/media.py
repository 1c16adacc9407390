"""Pictures and clips as plain arrays: what intake, text, engine and runner exchange.

Standard library and numpy. A picture is decoded once (`Media`), a model's processor says how it
stands in a prompt (`Layout`) and makes the tower's input of it (`Pixels`), and batches name it by
its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Kind: TypeAlias = Literal["image", "video"]
Frames: TypeAlias = npt.NDArray[np.uint8]
_Ints: TypeAlias = npt.NDArray[np.int32]
_Longs: TypeAlias = npt.NDArray[np.int64]
FEATURE = -1  # in `Layout.ids`: a feature of the tower goes here


@dataclass(frozen=True, slots=True, eq=False)
class Media:
    """A decoded picture or clip.

    frames: [frames, height, width, 3] RGB; a picture has one. digest: 32 bytes that name kind,
      shape and pixels. seconds: [frames] when each frame of a clip is shown; empty for pictures.
    """

    kind: Kind
    frames: Frames
    digest: bytes
    seconds: tuple[float, ...] = ()

    @classmethod
    def of(cls, kind: Kind, frames: Frames, seconds: tuple[float, ...] = ()) -> Media:
        """Name these frames by their digest."""
        frames = np.ascontiguousarray(frames)
        head = f"{kind} {frames.shape} {seconds}".encode()
        hashed = blake2b(head + b"\0", digest_size=32)
        hashed.update(frames.data)
        return cls(kind, frames, hashed.digest(), seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How one picture or clip stands in a model's prompt. Depends on its kind, size and times, not
    on its pixels.

    ids: [n] what replaces the model's one placeholder: token ids, and FEATURE where a feature of
      the tower goes.
    unit_costs: tower tokens of each unit that the tower computes apart (a tile, or a frame).
    positions: [3, n] rotary positions of models that have three, counted from the first id's; None:
      positions count tokens. num_positions: the token behind it has this position, in all three.
    """

    ids: _Ints
    unit_costs: tuple[int, ...]
    positions: _Longs | None = None
    num_positions: int = 0

    @property
    def num_features(self) -> int:
        """Features that the tower gives for it."""
        return int((self.ids == FEATURE).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """The tower's input for one picture or clip. arrays: whatever the model's processor made, by
    name; only the model reads it. layout: of the same picture."""

    arrays: Mapping[str, npt.NDArray[Any]]
    layout: Layout


class MediaProcessor(Protocol):
    """What a model makes of pictures and clips before any weight is used. All methods may be called
    from any thread.

    settings: bytes that name the model's way of preparing pictures: a part of every key.
    kinds: what the model takes.
    """

    settings: bytes
    kinds: frozenset[Kind]

    def placeholder(self, kind: Kind) -> int:
        """The token for which a picture's layout is put, as chat templates write it."""

    def wrapped(self, kind: Kind) -> Sequence[int]:
        """The tokens of a picture that stands by itself in a prompt without a template: its
        placeholder once, and what the model expects around it."""

    def layout(self, media: Media) -> Layout:
        """Takes microseconds. Raises InvalidCall for a size that the model cannot take."""

    def pixels(self, media: Media) -> Pixels:
        """Resize and normalise. Takes milliseconds: never on the engine's thread."""


@dataclass(frozen=True, slots=True, eq=False)
class Encode:
    """Units of a picture that go through the tower before anything else of a batch is computed.

    units: which; parts of one picture come in order. The features are stored under its digest once
    the last unit is done, until they are dropped. Units that are stored already are not computed
    again. After a batch that failed it is not known whether its units are stored: encode all units
    of the picture again.
    """

    digest: bytes
    pixels: Pixels
    units: range


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """New tokens of a batch whose embeddings are features of a picture.

    start, end: indices into the batch's ids; each is a key outside of the vocabulary.
    offset: the index of the first of them among the features of `digest`.
    """

    start: int
    end: int
    digest: bytes
    offset: int


def rotary_parts(num_ids: int, starts: Sequence[int], layouts: Sequence[Layout]) -> _Longs | None:
    """[3, num_ids] rotary positions of a prompt in which these layouts stand at these indices,
    ascending; None where positions count tokens. A token behind the prompt has the largest position
    + 1 in all three parts, and so on."""
    if all(layout.positions is None for layout in layouts):
        return None
    parts = np.empty((3, num_ids), np.int64)
    end = position = 0
    for start, layout in zip(starts, layouts, strict=True):
        parts[:, end:start] = np.arange(position, position + start - end)
        position += start - end
        size, own = len(layout.ids), layout.positions
        end = start + size
        parts[:, start:end] = position + (np.arange(size) if own is None else own)
        position += size if own is None else layout.num_positions
    parts[:, end:] = np.arange(position, position + num_ids - end)
    return parts


def with_pictures(
    decode: Callable[[Sequence[int]], str], ids: Sequence[int], vocabulary_size: int
) -> str:
    """The text of a prompt's ids, in which features are shown as "[image x 576]": how many there
    are in a row. decode: the text of tokens."""
    pieces = []
    for is_key, run in groupby(ids, lambda token: token >= vocabulary_size):
        found = list(run)
        pieces.append(f"[image x {len(found)}]" if is_key else decode(found))
    return "".join(pieces)


def media_keys(digest: bytes, settings: bytes, num: int, vocabulary_size: int) -> _Ints:
    """[num] ids outside the vocabulary that stand for the features of a picture in the radix tree:
    equal pictures share them, different ones do not, and no prompt of tokens can contain them."""
    room = 2**31 - vocabulary_size
    seed = blake2b(digest + settings, digest_size=32).digest()
    hashes = [
        int.from_bytes(blake2b(seed + i.to_bytes(4, "little"), digest_size=8).digest(), "little")
        for i in range(num)
    ]
    return np.array([vocabulary_size + value % room for value in hashes], np.int32)
