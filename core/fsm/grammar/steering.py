"""Steers an answer to its end: the next tokens after which an end is known that fits.

Not every token can be tried, so what it lets through is a part of what would fit, near the end of
a budget only: beginnings of an end that is known, and of all other tokens a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..tokens.required import beginnings
from ..tokens.vocabulary import Vocabulary
from .ending import END
from .matcher import Matcher
from .trail import Trail

NUM_FIRST = 64
NUM_SPREAD = 128
NUM_SEARCHED = 12


class Place(NamedTuple):
    """Where an answer stands.

    matcher: of bytes. trail: of what was written. required: what the next tokens must spell.
    end: bytes that end the answer from here; they begin with what is required.
    """

    matcher: Matcher
    trail: Trail
    required: bytes
    end: bytes


class Steering:
    """The next tokens near the end of a budget, for one grammar and vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def ends_after(self, place: Place, allowed: Sequence[int], budget: int) -> dict[int, bytes]:
        """For each token after which an end fits `budget`, the token included: that end.

        allowed: tokens by which the answer can go on.
        """
        spell, table = self._vocabulary.spell, self._vocabulary.token_bytes
        leading = beginnings(place.end, self._vocabulary)
        found = {token: end for token, end in leading.items() if spell(end) < budget}
        others = [token for token in _sample(allowed) if table[token] and token not in leading]
        end = place.end[len(place.required) :]
        if spell(end) < budget:
            found |= {token: end for token in others if _ends(place, table[token] + end)}
        left = sorted(
            (token for token in others if token not in found), key=lambda t: len(table[t])
        )
        for token in left[:NUM_SEARCHED]:
            other = _end_after(place, table[token])
            if other is not None and spell(other) < budget:
                found[token] = other
        return found

    def closest(self, place: Place) -> dict[int, bytes]:
        """The tokens that begin the known end and leave least of it."""
        leading = beginnings(place.end, self._vocabulary)
        needs = {token: self._vocabulary.spell(end) for token, end in leading.items()}
        least = min(needs.values(), default=0)
        return {token: end for token, end in leading.items() if needs[token] == least}


def _end_after(place: Place, data: bytes) -> bytes | None:
    """The end that is known after a token of these bytes, with what it leaves of the required."""
    step = data + place.required[len(data) :]
    if place.matcher.validate_tokens(list(step)) < len(step):
        return None
    trail = place.trail.copy()
    trail.advance(step)
    return None if trail.end is None else step[len(data) :] + trail.end


def _ends(place: Place, data: bytes) -> bool:
    """Whether these bytes end the answer."""
    return bool(place.matcher.validate_tokens([*data, END]) == len(data) + 1)


def _sample(tokens: Sequence[int]) -> Sequence[int]:
    """The first of these tokens, and some that are spread over the others."""
    rest = tokens[NUM_FIRST:]
    return [*tokens[:NUM_FIRST], *rest[:: max(1, len(rest) // NUM_SPREAD)]]
