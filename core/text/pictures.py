"""Pictures and clips in prompts: where their placeholders stand, and what is put in their place.

It knows nothing of pixels: a model's processor says how a picture stands in a prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ..api.media import FEATURE, Kind, Media, MediaProcessor
from ..api.protocol import Image, InvalidCall, Segment, Shown, UnsupportedCall, Video

Picture: TypeAlias = Image | Video


@dataclass(frozen=True, slots=True)
class Place:
    """Where a picture stands. index: of its placeholder among a prompt's ids."""

    index: int
    segment: Picture


class PromptIds(NamedTuple):
    """A prompt's token ids, in which each picture is one placeholder. places: ascending."""

    ids: list[int]
    places: tuple[Place, ...] = ()

    def behind(self, start: Sequence[int]) -> PromptIds:
        """The same after other ids."""
        places = (Place(len(start) + it.index, it.segment) for it in self.places)
        return PromptIds([*start, *self.ids], tuple(places))

    def filled(self, fills: Iterable[Sequence[int]]) -> list[int]:
        """The ids with these in place of the placeholders, in order."""
        filled: list[int] = []
        end = 0
        for place, fill in zip(self.places, fills, strict=True):
            filled += self.ids[end : place.index]
            filled += fill
            end = place.index + 1
        return filled + self.ids[end:]


class Placeholders:
    """The placeholders of a model's pictures; a model without a processor takes none. load: decodes
    pictures, whose size says how many tokens they take; None: each counts as one."""

    def __init__(
        self,
        processor: MediaProcessor | None = None,
        load: Callable[[Picture], Media] | None = None,
    ) -> None:
        kinds: Iterable[Kind] = () if processor is None else sorted(processor.kinds)
        self._processor = processor
        self._load = load
        self._tokens = {} if processor is None else {it: processor.placeholder(it) for it in kinds}
        self.tokens = frozenset(self._tokens.values())

    @property
    def is_empty(self) -> bool:
        """Whether there are none: the model takes no pictures."""
        return not self.tokens

    def wrapped(self, picture: Picture) -> tuple[list[int], int]:
        """The tokens of a picture that stands by itself, and the index of its placeholder. Raises
        UnsupportedCall for what the model does not take."""
        token = self._token(picture)
        assert self._processor is not None
        ids = list(self._processor.wrapped(kind_of(picture)))
        return ids, ids.index(token)

    def repeated(self, picture: Picture) -> list[int]:
        """The tokens that take a picture's place, with its placeholder for each feature, as
        processors of transformers write them. Decodes it: raises InvalidCall for what is none."""
        token = self._token(picture)
        if self._load is None or self._processor is None:
            return [token]
        ids = self._processor.layout(self._load(picture)).ids
        return [token if it == FEATURE else it for it in ids.tolist()]

    def find(self, ids: Sequence[int], start: int) -> list[tuple[int, int]]:
        """The placeholders among ids of which the first is number `start` of a prompt: their
        numbers, and which they are."""
        if not self.tokens:
            return []
        return [(start + i, token) for i, token in enumerate(ids) if token in self.tokens]

    def match(self, found: Sequence[tuple[int, int]], pictures: Sequence[Picture]) -> list[Place]:
        """The place of each picture, given the placeholders that a template wrote for all. Raises
        InvalidCall where these are not as many as the pictures."""
        waiting: dict[int, list[Picture]] = {}
        for picture in reversed(pictures):
            waiting.setdefault(self._token(picture), []).append(picture)
        wanted = {token: len(some) for token, some in waiting.items()}
        if Counter(token for _, token in found) != wanted:
            raise InvalidCall(
                "prompt",
                Shown(f"{len(found)} placeholders of pictures"),
                f"as many as pictures ({len(pictures)}), in messages that the template shows",
            )
        return [Place(index, waiting[token].pop()) for index, token in found]

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise InvalidCall for a placeholder among ids that a caller gives."""
        if self.tokens and (found := self.tokens.intersection(ids)):
            allowed = "no placeholder of a picture among token ids; an Image or Video in its place"
            raise InvalidCall("prompt", min(found), allowed)

    def _token(self, picture: Picture) -> int:
        kind = kind_of(picture)
        if kind not in self._tokens:
            known = ["text", "tokens", *(f"{it}s" for it in self._tokens)]
            allowed = f"{', '.join(known[:-1])} and {known[-1]}"
            raise UnsupportedCall("prompt", f"a segment with {kind} data", allowed)
        return self._tokens[kind]


def kind_of(picture: Picture) -> Kind:
    """What kind of picture it is."""
    return "image" if isinstance(picture, Image) else "video"


def is_picture(segment: Segment) -> bool:
    """Whether this is a picture or a clip."""
    return isinstance(segment, Image | Video)
