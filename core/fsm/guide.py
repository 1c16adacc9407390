"""What the runtime sees of a constraint: a guide for each constraint, a cursor for each sequence.

A guide is compiled once for a vocabulary and shared by every call with the same constraint. A
cursor is its state in one sequence: small, copied when a sequence forks, moved by every token.
"""

from __future__ import annotations

from typing import Protocol

from .tokens.vocabulary import Mask


class Cursor(Protocol):
    """The state of one answer in its constraint."""

    @property
    def is_accepting(self) -> bool:
        """Whether the answer may end here."""

    @property
    def is_finished(self) -> bool:
        """Whether the answer must end here, or has ended."""

    def advance(self, token: int) -> None:
        """Take a token. Raises CallFailed where the mask does not allow it."""

    def mask(self) -> Mask:
        """[words] packed bits of the tokens allowed next; shared, not to be changed."""

    def mask_within(self, budget: int) -> Mask:
        """As `mask`, without tokens after which the answer could not be finished in time.

        budget: tokens that may still be generated, the next one included, the end token not.
        Where nothing fits, the tokens that come closest. No bit is set where only the end is left
        and the vocabulary has no end token.
        """

    def fits(self, token: int, budget: int) -> bool:
        """Whether the answer could still be finished after a token that `mask_within` allows, for
        the same budget. One that does not fit is not allowed here any more."""

    def forced(self) -> bytes:
        """What must come next, whatever is chosen: whole characters; b"" where there is a choice,
        or the answer may end."""

    def joins(self, tail: bytes) -> bool:
        """Whether some token begins with `tail`, the last bytes written, and has more, all of
        which may come next."""

    def shortest_finish(self) -> int:
        """Tokens, the end token not counted, that are enough to end the answer."""

    def after(self, data: bytes) -> Cursor:
        """A cursor behind more bytes of the answer, whatever tokens write them. Raises CallFailed
        where the constraint does not allow them."""

    def copy(self) -> Cursor:
        """A cursor in the same state that moves on its own."""


class Guide(Protocol):
    """A constraint, compiled for one vocabulary. Immutable to its users, and safe for threads."""

    @property
    def num_bytes(self) -> int:
        """Memory that the guide holds now, about."""

    def cursor(self, written: bytes = b"", required: bytes = b"") -> Cursor:
        """A cursor after `written` bytes of the answer, whose next tokens must spell `required`.

        Raises CallFailed where the constraint does not allow these bytes.
        """
