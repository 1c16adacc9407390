"""Guides of regular languages: one automaton, its masks, its forced runs and its shortest ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...api.protocol import CallFailed, Choices, InvalidCall, Regex
from ..regex.dfa import DEAD, Dfa
from ..regex.errors import FIELD
from ..regex.limits import Limits
from ..regex.regex import compile_regex, from_choices
from .compress import Chains
from .finish import Counts, ShortestFinish
from .masks import Masks
from .vocabulary import NEVER, Mask, Vocabulary, left_over

MAX_JOINS = 1024


def regular_guide(
    constraint: Regex | Choices, vocabulary: Vocabulary, limits: Limits | None = None
) -> RegularGuide:
    """Compile a pattern or a list of texts. Raises InvalidCall."""
    return RegularGuide(automaton(constraint, None, limits), vocabulary)


def automaton(
    constraint: Regex | Choices, field: str | None = None, limits: Limits | None = None
) -> Dfa:
    """The automaton of a pattern or a list of texts, called `field` (or what it is) in errors.
    Raises InvalidCall; TooSlow where only the time was not enough."""
    if isinstance(constraint, Regex):
        has_nets = field == FIELD  # of schemas, whose patterns are written here
        return compile_regex(constraint.pattern, limits, field or "regex", has_nets)
    return from_choices(constraint.options, limits, field or "choices")


class Compiled(NamedTuple):
    """An automaton, and `ShortestFinish.num_tokens` where that is known already."""

    dfa: Dfa
    num_tokens: Counts | None = None


class RegularGuide:
    """As `Guide`. field: what the constraint is called in errors. num_tokens: as in `Compiled`.

    Raises InvalidCall where the vocabulary cannot spell any text that the automaton accepts.
    """

    def __init__(
        self,
        dfa: Dfa,
        vocabulary: Vocabulary,
        field: str = "constraint",
        num_tokens: Counts | None = None,
    ) -> None:
        self.dfa = dfa
        self.vocabulary = vocabulary
        self.finish = ShortestFinish(dfa, vocabulary, num_tokens)
        self.masks = Masks(dfa, vocabulary, self.finish)
        self.chains = Chains(dfa)
        self._joins: dict[tuple[int, bytes], bool] = {}
        if self.finish.tokens(dfa.start) >= NEVER:
            raise InvalidCall(field, "a constraint", "texts that the model's tokens can spell")

    @property
    def num_bytes(self) -> int:
        """As `Guide.num_bytes`."""
        return self.dfa.table.nbytes + self.masks.num_bytes

    def joins(self, state: int, tail: bytes) -> bool:
        """As `Cursor.joins`, in a state."""
        known = self._joins.get((state, tail))
        if known is None:
            known = self.vocabulary.is_extended(tail, lambda rest: bool(self.dfa.run(state, rest)))
            if len(self._joins) >= MAX_JOINS:
                self._joins.clear()
            self._joins[state, tail] = known
        return known

    def cursor(self, written: bytes = b"", required: bytes = b"") -> RegularCursor:
        """As `Guide.cursor`."""
        state = self.dfa.run(self.dfa.start, written)
        if not state or not self.dfa.run(state, required):
            raise CallFailed(f"the constraint does not allow {written + required!r}")
        return RegularCursor(self, state, required)


class RegularCursor:
    """As `Cursor`.

    state: of the automaton, after all tokens taken. required: bytes that the next tokens must
      spell, which the automaton allows. has_ended: an end token was taken.
    """

    __slots__ = ("guide", "has_ended", "required", "state")

    def __init__(self, guide: RegularGuide, state: int, required: bytes = b"") -> None:
        self.guide = guide
        self.state = state
        self.required = required
        self.has_ended = False

    @property
    def is_accepting(self) -> bool:
        """As `Cursor.is_accepting`."""
        return not self.required and self.guide.dfa.is_accepting(self.state)

    @property
    def is_finished(self) -> bool:
        """As `Cursor.is_finished`."""
        return self.has_ended or (self.is_accepting and self.guide.masks.is_last(self.state))

    def advance(self, token: int) -> None:
        """As `Cursor.advance`."""
        vocabulary = self.guide.vocabulary
        is_known = 0 <= token < vocabulary.size
        if is_known and vocabulary.is_end[token]:
            is_allowed = self.is_accepting
            self.has_ended = is_allowed or self.has_ended
        else:
            is_allowed = is_known and self._take(vocabulary.token_bytes[token])
        if not is_allowed:
            raise CallFailed(f"token {token} is not allowed by the constraint here")

    def _take(self, data: bytes) -> bool:
        """Move over a token's bytes; False, and not moved, where they are not allowed."""
        state = self.guide.dfa.run(self.state, data)
        rest = left_over(self.required, data)
        if state == DEAD or not data or rest is None or self.has_ended:
            return False
        self.state, self.required = state, rest
        return True

    def mask(self) -> Mask:
        """As `Cursor.mask`."""
        mask = self.guide.masks.allowed(self.state).mask
        return self.guide.vocabulary.spelling(mask, self.required)

    def mask_within(self, budget: int) -> Mask:
        """As `Cursor.mask_within`."""
        if not self.required:
            return self.guide.masks.within(self.state, budget)
        allowed = self.guide.masks.allowed(self.state)
        rest = self.guide.finish.tokens(self.guide.dfa.run(self.state, self.required))
        if max(allowed.worst, len(self.required) + rest) < budget:
            return self.guide.vocabulary.spelling(allowed.mask, self.required)
        return self._spelling_within(budget, rest)

    def fits(self, token: int, budget: int) -> bool:
        """As `Cursor.fits`: the mask is exact for every token."""
        return True

    def forced(self) -> bytes:
        """As `Cursor.forced`."""
        if not self.required:
            return self.guide.chains.forced(self.state).data
        after = self.guide.dfa.run(self.state, self.required)
        return self.required + self.guide.chains.forced(after).data

    def joins(self, tail: bytes) -> bool:
        """As `Cursor.joins`."""
        return self.guide.joins(self.state, tail)

    def shortest_finish(self) -> int:
        """As `Cursor.shortest_finish`."""
        after = self.guide.dfa.run(self.state, self.required)
        return self.guide.vocabulary.spell(self.required) + self.guide.finish.tokens(after)

    def after(self, data: bytes) -> RegularCursor:
        """As `Cursor.after`."""
        other = self.copy()
        if data and not other._take(data):
            raise CallFailed(f"the constraint does not allow {data!r} here")
        return other

    def copy(self) -> RegularCursor:
        """As `Cursor.copy`."""
        other = RegularCursor(self.guide, self.state, self.required)
        other.has_ended = self.has_ended
        return other

    def _spelling_within(self, budget: int, rest: int) -> Mask:
        """As `mask_within`, where each token's need is to be looked at.

        rest: tokens that are needed after what is required.
        """
        guide, required = self.guide, self.required
        vocabulary = guide.vocabulary
        longer = vocabulary.mask_of(vocabulary.beginning_with(required))
        mask = guide.masks.fitting(self.state, budget) & longer
        shorter = [
            token
            for token, left in vocabulary.beginnings(required).items()
            if vocabulary.spell(left) + rest < budget
        ]
        mask = mask | vocabulary.mask_of(shorter)
        allowed = guide.masks.allowed(self.state).mask
        return mask if np.any(mask) else vocabulary.spelling(allowed, required)
