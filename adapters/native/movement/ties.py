"""What ties the parts of a prompt to their order, each with the reason.

Parts that are joined form blocks. Constant blocks may only move towards the front, past blocks with
arguments, and in their own order; the other ties say past which.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .joins import joins, quoted
from .parts import Part, Stretch
from .references import Direction, Reference, references
from .shapes import is_ended, is_open_label
from .subjects import opens_scene, why_not_first


@dataclass(frozen=True, slots=True)
class Tie:
    """One part comes before another: somewhere, or right before it.

    kind: "order", "label" (all that is joined), "reference", "subject", "scene" or "cue".
    """

    kind: str
    first: int
    second: int
    reason: str
    is_joined: bool = False


class Ties:
    """All ties of the parts of a stretch, by their places.

    blocks: its parts, joined. num_fixed: how many of the blocks stand before the first argument.
    """

    def __init__(self, stretch: Stretch) -> None:
        self._stretch, self._parts = stretch, stretch.parts
        self._references = {part.place: references(part.text) for part in stretch.parts}
        self._joined: Mapping[int, tuple[str, str]] = {
            **{at: ("reference", reason) for at, reason in self._referring(stretch.parts)},
            **{at: ("label", reason) for at, reason in joins(stretch.parts).items()},
        }
        self.blocks = tuple(_blocks(stretch.parts, self._joined))
        self._is_free = {part.place: is_constant(block) for block in self.blocks for part in block}

    @cached_property
    def all(self) -> tuple[Tie, ...]:
        """Every tie."""
        return (
            *(Tie(kind, at - 1, at, why, True) for at, (kind, why) in self._joined.items()),
            *self._fixed_orders(),
            *self._behind_arguments(),
            *self._before_others(),
        )

    def _referring(self, parts: Sequence[Part]) -> Iterator[tuple[int, str]]:
        """Parts that go on with the one before them, or that the one before refers to."""
        for part in parts:
            for found in self._references[part.place]:
                place = part.place + (found.direction is Direction.AHEAD)
                if 0 < place < len(parts):
                    yield place, _refers(part, found)

    def _fixed_orders(self) -> Iterator[Tie]:
        last: dict[bool, Part] = {}
        for part in self._parts:
            is_free = self._is_free[part.place]
            if (other := last.get(is_free)) is not None:
                kind = "constant parts" if is_free else "parts with arguments"
                yield Tie("order", other.place, part.place, f"{kind} keep their order")
            if not is_free and (other := last.get(True)) is not None:
                reason = f"{quoted(other)} would move away from the front"
                yield Tie("order", other.place, part.place, reason)
            last[is_free] = part

    def _behind_arguments(self) -> Iterator[Tie]:
        """Constant parts that stay behind the last argument before them, and so behind all."""
        last: Part | None = None
        for part in self._parts:
            if not self._is_free[part.place]:
                last = part
            elif last is not None:
                for kind, reason in self._reasons(part):
                    yield Tie(kind, last.place, part.place, reason)

    def _reasons(self, part: Part) -> Iterator[tuple[str, str]]:
        """Why a constant part stays behind the arguments before it."""
        for found in self._references[part.place]:
            if found.direction is Direction.BACK:
                yield "reference", _refers(part, found)
        if part.place not in self._joined or self._references[part.place]:
            reason = why_not_first(part, self._parts[: part.place])
            if reason is not None:
                yield "subject", f"{quoted(part)}: {reason}"
        is_last = part is self._parts[-1]
        if is_last and (is_open_label(part) or not is_ended(part)):
            yield "cue", f"{quoted(part)} stands before the answer"
        if is_last and self._stretch.is_referred:
            yield "reference", f"what follows refers back to {quoted(part)}"

    def _before_others(self) -> Iterator[Tie]:
        """Parts with arguments that what follows depends on."""
        for part in self._parts:
            later = (it for it in self._parts[part.place + 1 :] if self._is_free[it.place])
            following = next(later, None)
            if self._is_free[part.place] or following is None:
                continue
            if part.place == 0 and self._stretch.is_continued:
                reason = f"{quoted(part)} goes on with the text in front of it"
                yield Tie("label", part.place, following.place, reason)
            if not part.is_constant and opens_scene(part):
                reason = f"what follows depends on {quoted(part)}"
                yield Tie("scene", part.place, following.place, reason)


def is_constant(block: Sequence[Part]) -> bool:
    """Whether no part of a block has an argument."""
    return all(part.is_constant for part in block)


def _blocks(parts: Sequence[Part], joined: Container[int]) -> Iterator[tuple[Part, ...]]:
    block: tuple[Part, ...] = ()
    for part in parts:
        if block and part.place not in joined:
            yield block
            block = ()
        block = (*block, part)
    if block:
        yield block


def _refers(part: Part, found: Reference) -> str:
    where = "follows" if found.direction is Direction.AHEAD else "stands before it"
    return f'{quoted(part)} refers by "{found.phrase}" to what {where}'
