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


class Chains:
    """The compressed edge of every state, computed at first use."""

    def __init__(self, dfa: Dfa) -> None:
        self._dfa = dfa
        live = dfa.table > 0
        kinds = live.argmax(axis=1)
        is_forced = (
            (np.count_nonzero(live, axis=1) == 1) & (dfa.class_sizes[kinds] == 1) & ~dfa.accepting
        )
        self._char = np.where(is_forced, dfa.first_chars[kinds], -1).tolist()
        self._next = dfa.table[np.arange(dfa.num_states), kinds].tolist()
        self._known: dict[int, Edge] = {}

    def forced(self, state: int) -> Edge:
        """What must come next; no bytes where there is a choice, or the answer may end."""
        if state <= STATE_MASK and self._char[state] < 0:
            return Edge(b"", state)
        edge = self._known.get(state)
        if edge is None:
            edge = self._follow(state) if state <= STATE_MASK else self._complete(state)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[state] = edge
        return edge

    def _follow(self, state: int) -> Edge:
        chars = []
        while (char := self._char[state]) >= 0:
            chars.append(chr(char))
            state = self._next[state]
        return Edge("".join(chars).encode(), state)

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
