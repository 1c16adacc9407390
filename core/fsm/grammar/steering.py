"""Steers an answer to its end: the next tokens after which an end is known that fits.

Not every token can be tried, so what it lets through is a part of what would fit, near the end of
a budget only: beginnings of an end that is known, and of all other tokens a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..tokens.vocabulary import Vocabulary
from .end_tracker import EndTracker
from .ending import is_end
from .matcher import Matcher

NUM_FIRST = 64
NUM_SPREAD = 128
NUM_SEARCHED = 12


class Position(NamedTuple):
    """The state of an answer.

    matcher: of bytes. end_tracker: of the text so far. required: what the next tokens must spell.
    end: bytes that end the answer from here; they begin with what is required.
    """

    matcher: Matcher
    end_tracker: EndTracker
    required: bytes
    end: bytes


def ends_after(
    position: Position, allowed: Sequence[int], budget: int, vocabulary: Vocabulary
) -> dict[int, bytes]:
    """For each token after which an end fits `budget`, the token included: that end.

    allowed: tokens by which the answer can go on.
    """
    spell, table = vocabulary.spell, vocabulary.token_bytes
    leading = vocabulary.beginnings(position.end)
    found = {token: end for token, end in leading.items() if spell(end) < budget}
    others = [token for token in _sample(allowed) if table[token] and token not in leading]
    end = position.end[len(position.required) :]
    if spell(end) < budget:
        found |= {token: end for token in others if is_end(position.matcher, table[token] + end)}
    left = sorted((token for token in others if token not in found), key=lambda t: len(table[t]))
    for token in left[:NUM_SEARCHED]:
        other = _end_after(position, table[token])
        if other is not None and spell(other) < budget:
            found[token] = other
    return found


def closest(position: Position, vocabulary: Vocabulary) -> dict[int, bytes]:
    """The tokens that begin the known end and leave least of it."""
    leading = vocabulary.beginnings(position.end)
    needs = {token: vocabulary.spell(end) for token, end in leading.items()}
    least = min(needs.values(), default=0)
    return {token: end for token, end in leading.items() if needs[token] == least}


def _end_after(position: Position, data: bytes) -> bytes | None:
    """The end that is known after a token of these bytes, with what it leaves of the required."""
    step = data + position.required[len(data) :]
    if position.matcher.validate_tokens(list(step)) < len(step):
        return None
    end_tracker = position.end_tracker.copy()
    end_tracker.advance(step)
    return None if end_tracker.end is None else step[len(data) :] + end_tracker.end


def _sample(tokens: Sequence[int]) -> Sequence[int]:
    """The first of these tokens, and some that are spread over the others."""
    rest = tokens[NUM_FIRST:]
    return [*tokens[:NUM_FIRST], *rest[:: max(1, len(rest) // NUM_SPREAD)]]
