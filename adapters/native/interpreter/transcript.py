"""The prompt of a state while it grows: plain segments, or chat messages once a role was used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from ....core.api.protocol import Chat, Image, Message, ProgramError, Prompt, Segment, Text, Video
from ..language.expressions import RoleBegin, RoleEnd


@dataclass(frozen=True, slots=True)
class Piece:
    """Something in the prompt. `segments` is what a backend gets, `text` what a reader sees."""

    text: str
    segments: tuple[Segment, ...]
    is_answer: bool = False


Entry: TypeAlias = Piece | RoleBegin | RoleEnd


class Transcript:
    """Entries in order. Roles do not nest, and plain text and messages do not mix."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: list[Entry] = []
        self._role: str | None = None
        self._is_chat = False
        self.extend(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def since(self, start: int) -> tuple[Entry, ...]:
        """The entries from `start` on."""
        return tuple(self._entries[start:])

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add each entry. Raises ProgramError where one does not fit behind those before it."""
        for entry in entries:
            if isinstance(entry, RoleBegin):
                self._open(entry)
            elif isinstance(entry, RoleEnd):
                self._close(entry)
            else:
                self._add(entry)

    def add_text(self, text: str) -> None:
        """Add text that the program wrote."""
        self._add(Piece(text, (Text(text),)))

    def add_answer(self, text: str, segments: tuple[Segment, ...]) -> None:
        """Add what the model wrote or chose; outside of a message it is one of the assistant."""
        self._add(Piece(text, segments or (Text(text),), is_answer=True))

    def add_media(self, segment: Image | Video) -> None:
        """Add an image or a video."""
        self._add(Piece("", (segment,)))

    def has_media(self) -> bool:
        """Whether the prompt shows an image or a video."""
        return any(isinstance(s, Image | Video) for p in self._pieces() for s in p.segments)

    def text(self, start: int = 0) -> str:
        """All text from entry `start` on, without any marks of a chat template."""
        return "".join(e.text for e in self._entries[start:] if isinstance(e, Piece))

    def num_chars(self, start: int = 0) -> int:
        """How long `text` is."""
        return sum(len(e.text) for e in self._entries[start:] if isinstance(e, Piece))

    def prompt(self) -> Prompt:
        """What a backend is given to go on from here."""
        if not self._is_chat:
            return merged(self._pieces())
        messages = tuple(Message(role, merged(pieces)) for role, pieces in self._messages())
        return Chat(messages, open_last=self._role is not None)

    def messages(self) -> list[dict[str, Any]]:
        """The chat so far, as role and content; content is a list of parts if it has media."""
        return [{"role": role, "content": _readable(pieces)} for role, pieces in self._messages()]

    def _open(self, opening: RoleBegin) -> None:
        if self._role is not None:
            raise ProgramError(f"role {opening.role!r} begins inside role {self._role!r}")
        if self._entries and not self._is_chat:
            raise ProgramError(f"role {opening.role!r} begins after text outside of any role")
        self._entries.append(opening)
        self._role = opening.role
        self._is_chat = True

    def _close(self, closing: RoleEnd) -> None:
        if self._role is None:
            raise ProgramError("a role ends, but none is open")
        self._entries.append(closing)
        self._role = None

    def _add(self, piece: Piece) -> None:
        is_outside = self._is_chat and self._role is None
        if is_outside and not piece.is_answer:
            raise ProgramError(f"text outside of any role in a chat: {piece.text[:60]!r}")
        if is_outside:
            self._entries += (RoleBegin("assistant"), piece, RoleEnd())
        elif piece.text or piece.is_answer or piece.segments != (Text(""),):
            self._entries.append(piece)

    def _pieces(self) -> list[Piece]:
        return [entry for entry in self._entries if isinstance(entry, Piece)]

    def _messages(self) -> list[tuple[str, list[Piece]]]:
        found: list[tuple[str, list[Piece]]] = []
        for entry in self._entries:
            if isinstance(entry, RoleBegin):
                found.append((entry.role, []))
            elif isinstance(entry, Piece) and found:
                found[-1][1].append(entry)
        return found


def merged(pieces: Sequence[Piece]) -> tuple[Segment, ...]:
    """The segments of all pieces, adjacent texts without token ids made one."""
    segments = (segment for piece in pieces for segment in piece.segments)
    found: list[Segment] = []
    for is_text, run in groupby(segments, lambda it: isinstance(it, Text) and it.ids is None):
        if not is_text:
            found += run
        elif text := "".join(segment.text for segment in run if isinstance(segment, Text)):
            found.append(Text(text))
    return tuple(found)


def _readable(pieces: Sequence[Piece]) -> str | list[dict[str, Any]]:
    if all(piece.text or piece.is_answer for piece in pieces):
        return "".join(piece.text for piece in pieces)
    return [_part(piece) for piece in pieces]


def _part(piece: Piece) -> dict[str, Any]:
    media = [segment for segment in piece.segments if isinstance(segment, Image | Video)]
    if not media:
        return {"type": "text", "text": piece.text}
    return {"type": type(media[0]).__name__.lower(), "data": media[0].data}
