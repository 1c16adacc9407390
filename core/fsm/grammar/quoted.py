"""How a text in quotes goes on to its end, where a terminal of the grammar wants some last letters.

A matcher says which bytes may come next; in a text nearly all may. The automaton of the terminal
says which of them lead to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from ...api.protocol import InvalidCall
from ..regex.dfa import DEAD, STATE_MASK, Dfa
from ..regex.limits import Limits
from ..regex.regex import compile_regex
from ..tokens.finish import shortest_text
from ..tokens.vocabulary import NEVER

MAX_TEXTS, MAX_TRIED = 16, 64
MAX_PATTERN = 20_000  # characters
LIMITS = Limits(
    length=MAX_PATTERN, positions=5_000, states=1_000, cells=100_000, work=50_000, seconds=0.2
)
QUOTE, ESCAPE = ord('"'), ord("\\")
_QUOTE = re.compile(rb'(?<!\\)(?:\\\\)*"')
_USUAL = re.compile(r"[a-zA-Z0-9]")


class Position(NamedTuple):
    """Where a text stands. states: of each automaton, DEAD where its text is not written here."""

    is_open: bool
    is_escaped: bool
    states: tuple[int, ...]


class QuotedTexts:
    """The texts of these patterns, each of which begins and ends with a quote.

    usable: bits of the bytes that tokens can spell. Patterns that no small automaton reads, and
    those of texts that may end anywhere, are left out.
    """

    def __init__(self, patterns: Iterable[str], usable: int) -> None:
        tried = (_read(pattern, usable) for pattern in islice(patterns, MAX_TRIED))
        self._texts = list(islice((text for text in tried if text is not None), MAX_TEXTS))
        self._nowhere = (DEAD,) * len(self._texts)

    def __bool__(self) -> bool:
        return bool(self._texts)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Those that are not left out."""
        return tuple(text.pattern for text in self._texts)

    def position(self, written: bytes) -> Position:
        """Where a text stands that was written so far."""
        quotes = list(_QUOTE.finditer(written))
        if len(quotes) % 2 == 0:
            return Position(False, False, self._nowhere)
        position = Position(False, False, self._nowhere)
        for byte in written[quotes[-1].end() - 1 :]:
            position = self.after(position, byte)
        return position

    def after(self, position: Position, byte: int) -> Position:
        """Where it stands after one more byte."""
        if not position.is_open:
            if byte != QUOTE:
                return position
            starts = (text.dfa.step(text.dfa.start, QUOTE) for text in self._texts)
            return Position(True, False, tuple(starts))
        if byte == QUOTE and not position.is_escaped:
            return Position(False, False, self._nowhere)
        states = position.states
        if any(states):
            pairs = zip(self._texts, states, strict=True)
            states = tuple([text.dfa.step(state, byte) if state else DEAD for text, state in pairs])
        return Position(True, byte == ESCAPE and not position.is_escaped, states)

    def leading(self, position: Position) -> list[int]:
        """The bytes that lead to the end of a text, of the one that ends soonest first."""
        found = list[tuple[int, int]]()
        for text, state in zip(self._texts, position.states, strict=True):
            if DEAD < state <= STATE_MASK and text.num_bytes[state] < NEVER:
                found.append((text.num_bytes[state], text.first_bytes[state]))
        return [byte for _, byte in sorted(found)]


class _Text:
    """num_bytes: [states] to the end of the text. first_bytes: [states] what begins the way."""

    def __init__(self, pattern: str, dfa: Dfa, usable: int) -> None:
        self.pattern = pattern
        self.dfa = dfa
        chars = [_usual(dfa, kind) for kind in range(dfa.num_classes)]

        def can_spell(char: str) -> bool:
            return all(usable >> byte & 1 for byte in _encoded(char))

        self.num_bytes, self._edges = shortest_text(dfa, chars, can_spell)

    @cached_property
    def first_bytes(self) -> list[int]:
        return [self._first_byte(edges) for edges in self._edges]

    def _first_byte(self, edges: list[tuple[str, int]]) -> int:
        """Of the character that leads to the end soonest."""
        ways = ((_encoded(char), self.num_bytes[to]) for char, to in edges)
        needs = [(len(data) + num_bytes, data[0]) for data, num_bytes in ways]
        return min(needs, default=(0, 0))[1]

    @property
    def ends_anywhere(self) -> bool:
        """Whether the quote may come after any letter."""
        first = self.dfa.step(self.dfa.start, QUOTE)
        todo, seen = [first], {first}
        while todo:
            state = todo.pop()
            if self.num_bytes[state] > 1:
                return False
            new = {to for char, to in self._edges[state] if char not in '"\\'} - seen
            seen |= new
            todo += new
        return True


def _read(pattern: str, usable: int) -> _Text | None:
    """The texts of a pattern; None: they are left out."""
    try:
        text = _Text(pattern, compile_regex(pattern, LIMITS), usable)
    except (InvalidCall, RecursionError):
        return None
    begins = bool(text.dfa.step(text.dfa.start, QUOTE))
    return text if begins and not text.ends_anywhere else None


def _usual(dfa: Dfa, kind: int) -> str:
    """A character of a class: a letter or a digit, where there is any."""
    starts, kinds = dfa.partition.starts, dfa.partition.kinds
    for start in starts[kinds == kind].tolist():
        if _USUAL.match(chr(start)):
            return chr(start)
    return chr(int(dfa.first_chars[kind]))


def _encoded(char: str) -> bytes:
    return char.encode(errors="surrogatepass")
