"""What one call for several gens is to write: their texts, and the constants between them.

`Follower` reads the answer while it comes, and tells when nothing more of it can be used. It knows
texts and stops, no calls and no streams.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....core.api.protocol import Sampling

_CLOSING = 32  # characters of a constant that end a call, at most
_MOST_CLOSINGS = 4  # stops that every API takes
_FOLLOWERS = ("\n", "}", ",", "]", ".", " ")  # what often follows the stop of a last gen


@dataclass(frozen=True, slots=True)
class Template:
    """Gens in order, and the constant behind each; the last constant need not be written."""

    gens: tuple[Sampling, ...]
    constants: tuple[str, ...]

    def closings(self) -> tuple[str, ...]:
        """Texts that tell that the last gen has ended: each begins with a stop of it, and is in no
        constant before. Empty for a gen without a stop, and where there is no such text."""
        found = [text for stop in self.gens[-1].stop for text in self._closings_of(stop)]
        return tuple(sorted(found, key=len)[:_MOST_CLOSINGS])

    def _closings_of(self, stop: str) -> tuple[str, ...]:
        """The stop itself; otherwise it and what the program writes behind it; otherwise it and
        what a model may write there."""
        tail = self.constants[-1]
        known = [stop]
        if tail.startswith(stop):
            known += [tail[:size] for size in range(len(stop) + 1, min(len(tail), _CLOSING) + 1)]
        for text in known:
            if self._is_new(text):
                return (text,)
        return tuple(stop + text for text in _FOLLOWERS if self._is_new(stop + text))

    def _is_new(self, text: str) -> bool:
        """Whether neither a constant before the last gen, nor the stop of a gen, has this text."""
        stops = [stop for gen in self.gens[:-1] for stop in gen.stop]
        return not any(text in other for other in (*self.constants[:-1], *stops))


class Follower:
    """The answer to a template while it comes. Mutable.

    lead: what the answer begins with, ahead of the first gen. has_text: whether any came.
    """

    def __init__(self, template: Template, lead: str = "") -> None:
        self._template = template
        self._expected = lead
        self._index = -1 if lead else 0  # of the gen that is written, or that was before
        self._text = ""
        self._start = 0  # of that gen, or of the constant that is expected
        self._searched = 0
        self._num_pieces = 0

    @property
    def has_text(self) -> bool:
        """Whether anything came."""
        return bool(self._text)

    def take(self, piece: str) -> bool:
        """Take more of the answer; whether what follows is of no use: the last gen has ended, the
        answer is not of the template, or a gen is longer than it may be."""
        self._text += piece
        self._num_pieces += 1
        while True:
            if self._expected:
                end = self._start + len(self._expected)
                found = self._text[self._start : end]
                if found != self._expected:
                    return not self._expected.startswith(found)
                self._begin_gen(end)
            stop = self._next_stop()
            if stop is None:
                return self._is_too_long()
            if self._index == len(self._template.gens) - 1:
                return True
            self._start, self._expected = stop, self._template.constants[self._index]

    def _begin_gen(self, start: int) -> None:
        self._start = self._searched = start
        self._expected, self._num_pieces = "", 0
        self._index += 1

    def _next_stop(self) -> int | None:
        """Where the gen ends, if it does."""
        stops = self._template.gens[self._index].stop
        found = [self._text.find(stop, self._searched) for stop in stops]
        longest = max(map(len, stops), default=1)
        self._searched = max(self._start, len(self._text) - longest + 1)
        return min((at for at in found if at >= 0), default=None)

    def _is_too_long(self) -> bool:
        """Whether the gen has more pieces than it may have tokens: a piece has one or more."""
        most = self._template.gens[self._index].max_tokens
        return most is not None and self._num_pieces > most
