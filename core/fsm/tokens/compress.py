"""Forced runs: where an automaton allows no choice, the whole run is one edge (paper, section 4).

A run ends where a choice begins, or where the answer may end. It holds whole characters only, so
that it can be encoded as text.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..regex import utf8
from ..regex.dfa import STATE_BITS, STATE_MASK, Dfa

MAX_KNOWN = 1024


class Edge(NamedTuple):
    """A compressed edge: the bytes that must come, and the state after them."""

    data: bytes
    to: int


class Step(NamedTuple):
    """A character, and the state after it."""

    char: str
    to: int


class Chains:
    """The compressed edge of every state, computed at first use."""

    def __init__(self, dfa: Dfa) -> None:
        self._dfa = dfa
        self._is_single = dfa.class_sizes == 1
        self._known: dict[int, Edge] = {}

    def forced(self, state: int) -> Edge:
        """What must come next; no bytes where there is a choice, or the answer may end."""
        edge = self._known.get(state)
        if edge is None:
            edge = self._follow(state) if state <= STATE_MASK else self._complete(state)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[state] = edge
        return edge

    def _follow(self, state: int) -> Edge:
        chars = []
        while (step := self._step(state)) is not None:
            chars.append(step.char)
            state = step.to
        return Edge("".join(chars).encode(), state)

    def _step(self, state: int) -> Step | None:
        """The one character that may come; None where there is a choice, or the answer may end."""
        row = self._dfa.table[state]
        kinds = row.nonzero()[0]
        if len(kinds) != 1 or self._dfa.accepting[state]:
            return None
        kind = int(kinds[0])
        is_single = self._is_single[kind]
        return Step(chr(self._dfa.first_chars[kind]), int(row[kind])) if is_single else None

    def _complete(self, state: int) -> Edge:
        """From inside a character: only where a single one can still be meant."""
        prefix, outside = state >> STATE_BITS, state & STATE_MASK
        start, end = utf8.span(prefix)
        codes = np.arange(start, end)
        allowed = codes[self._dfa.table[outside, self._dfa.kinds_of(codes)] > 0]
        if len(allowed) != 1:
            return Edge(b"", state)
        missing = chr(allowed[0]).encode()[-utf8.num_missing(prefix) :]
        rest = self._follow(self._dfa.run(state, missing))
        return Edge(missing + rest.data, rest.to)
