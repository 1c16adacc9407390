"""A prompt in parts: what may be moved, and what stands between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

PLACEHOLDER = "\ufffc"  # stands for a hole wherever the text of a part is read


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place in a text that is filled when the program runs.

    name: of the argument, variable or medium. node: which node of the graph it is.
    """

    name: str
    node: int


Piece: TypeAlias = str | Placeholder


@dataclass(frozen=True, slots=True)
class Part:
    """A sentence, line or block of a prompt, with its placeholders.

    place: its position in the prompt as the program wrote it. gap: the blanks in front of it there.
    """

    place: int
    pieces: tuple[Piece, ...]
    gap: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it is the same in each run."""
        return all(isinstance(piece, str) for piece in self.pieces)

    @property
    def text(self) -> str:
        """Its text, with a mark for each hole."""
        return "".join(piece if isinstance(piece, str) else PLACEHOLDER for piece in self.pieces)

    @property
    def starts_line(self) -> bool:
        return self.place == 0 or "\n" in self.gap

    @property
    def starts_paragraph(self) -> bool:
        return self.place == 0 or self.gap.count("\n") > 1

    def __str__(self) -> str:
        return shown(self.pieces)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Parts between two primitives, of one message of one stream.

    head, tail: the blanks around them, which stay. is_answered: what follows in the same message,
    as an answer, goes on where the parts end. is_continued: the first part goes on with the text
    in front of it. is_referred: what follows refers back to the last part.
    """

    parts: tuple[Part, ...]
    head: str = ""
    tail: str = ""
    is_answered: bool = False
    is_continued: bool = False
    is_referred: bool = False

    def pieces(self, order: Sequence[Part] | None = None) -> tuple[Piece, ...]:
        """All text and placeholders, with the parts in this order; texts that meet are joined."""
        return tuple(_joined(self._laid_out(self.parts if order is None else order)))

    def prefix(self, order: Sequence[Part] | None = None) -> str:
        """The constant text in front of the first hole."""
        first = next(iter(self.pieces(order)), "")
        return first if isinstance(first, str) else ""

    def _laid_out(self, order: Sequence[Part]) -> Iterator[Piece]:
        yield self.head
        left: Part | None = None
        for part in order:
            if left is not None:
                yield self._gap(left, part)
            yield from part.pieces
            left = part
        yield self.tail

    def _gap(self, left: Part, right: Part) -> str:
        """The blanks between two parts: as they were, or the wider of those that each had."""
        if right.place == left.place + 1:
            return right.gap
        behind = [self.parts[left.place + 1].gap] if left.place + 1 < len(self.parts) else []
        before = [right.gap if right.place else self.parts[1].gap]
        return max(behind + before, key=lambda gap: (gap.count("\n"), len(gap)))


def shown(pieces: Sequence[Piece]) -> str:
    """For messages: text with the names of its placeholders in braces."""
    return "".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in pieces)


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
        yield piece
        text = ""
    if text:
        yield text
