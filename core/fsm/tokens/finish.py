"""The shortest way to a match from every state: in bytes, and in tokens of a vocabulary.

The number of tokens is that of a way which is known to exist: never less than the least possible.
It is the least where single characters are chosen between, as in a list of texts; a wide class is
taken to be written with one and the same of its characters.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..regex import utf8
from ..regex.dfa import STATE_BITS, STATE_MASK, Dfa
from .vocabulary import NEVER, Vocabulary

Counts: TypeAlias = npt.NDArray[np.int32]
Edges: TypeAlias = list[list[tuple[str, int]]]

MAX_FEW = 8
MAX_INSIDE = 50_000
UNSPELLABLE = 10_000


def shortest_text(
    dfa: Dfa, chars: list[str], can_spell: Callable[[str], bool]
) -> tuple[list[int], Edges]:
    """[states] the fewest bytes that lead from each state to a match, of characters that can be
    spelled, and [states] (character, next state) pairs, as `_edges`."""
    num_bytes = [NEVER] * dfa.num_states
    edges: Edges = [[] for _ in range(dfa.num_states)]
    weight = {char: len(char.encode()) if can_spell(char) else UNSPELLABLE for char in chars}
    sources: list[list[tuple[int, str]]] = [[] for _ in range(dfa.num_states)]
    for state, char, to in _edges(dfa, chars, weight):
        edges[state].append((char, to))
        sources[to].append((state, char))
    heap = [(0, int(state)) for state in np.flatnonzero(dfa.accepting)]
    for _, state in heap:
        num_bytes[state] = 0
    while heap:
        length, to = heappop(heap)
        if length > num_bytes[to]:
            continue
        for state, char in sources[to]:
            longer = length + weight[char]
            if longer < num_bytes[state]:
                num_bytes[state] = longer
                heappush(heap, (longer, state))
    return num_bytes, edges


def _edges(dfa: Dfa, chars: list[str], weight: dict[str, int]) -> list[tuple[int, str, int]]:
    """(state, character, next state): for a pair of states all characters that are classes of
    their own, if these are few, else the lightest."""
    states, kinds = np.nonzero(dfa.table)
    to = dfa.table[states, kinds].astype(np.intp)
    order = np.lexsort((np.array([weight[char] for char in chars])[kinds], to, states))
    pairs = states[order] * dfa.num_states + to[order]
    _, first, pair, counts = np.unique(
        pairs, return_index=True, return_inverse=True, return_counts=True
    )
    is_first = np.zeros(len(pairs), bool)
    is_first[first] = True
    picked = order[is_first | (counts <= MAX_FEW)[pair.reshape(-1)]]
    names = map(chars.__getitem__, kinds[picked].tolist())
    return list(zip(states[picked].tolist(), names, to[picked].tolist(), strict=True))


def _representatives(dfa: Dfa, vocabulary: Vocabulary) -> list[str]:
    """A character for each class: one that is a token if there is any, else the first."""
    codes = dfa.first_chars.copy()
    tokens = vocabulary.char_tokens
    codes[0] = 0  # the class that leads nowhere
    codes[dfa.kinds_of(tokens)[::-1]] = tokens[::-1]
    return list(map(chr, codes.tolist()))


class ShortestFinish:
    """How many tokens each state needs to a match.

    num_tokens: [states] NEVER where the vocabulary cannot write any way to the end; 0 for the dead
      state and for those that accept. May be given, where it was found elsewhere.
    """

    def __init__(self, dfa: Dfa, vocabulary: Vocabulary, num_tokens: Counts | None = None) -> None:
        self._dfa = dfa
        self._vocabulary = vocabulary
        self._inside: dict[int, int] = {}
        if num_tokens is None:
            num_tokens = np.array(self._count(), np.int32)
        self.num_tokens: Counts = num_tokens

    def tokens(self, state: int) -> int:
        """The number for any state, also inside a character."""
        if state <= STATE_MASK:
            return int(self.num_tokens[state])
        known = self._inside.get(state)
        if known is None:
            if len(self._inside) >= MAX_INSIDE:
                self._inside.clear()
            known = self._inside[state] = self._count_inside(state)
        return known

    def _count(self) -> list[int]:
        dfa, vocabulary = self._dfa, self._vocabulary
        chars = _representatives(dfa, vocabulary)
        num_bytes, edges = shortest_text(
            dfa, chars, lambda char: vocabulary.spell(char.encode()) < NEVER
        )
        counts = [0 if accepts else NEVER for accepts in dfa.accepting.tolist()]
        counts[0] = 0
        order = np.argsort(np.array(num_bytes), kind="stable").tolist()
        steps = [(state, self._steps(state, edges)) for state in order if counts[state]]
        _settle(counts, steps)
        return counts

    def _steps(self, state: int, edges: Edges) -> list[tuple[int, int]]:
        """(next state, tokens): where one token leads, or the bytes of one character."""
        vocabulary = self._vocabulary
        steps = {to: vocabulary.spell(char.encode()) for char, to in reversed(edges[state])}
        token = vocabulary.node_token
        stack = [(vocabulary.trie.roots[b""], state)]
        while stack:
            node, here = stack.pop()
            for char, to in edges[here]:
                child = vocabulary.child(node, char)
                if child >= 0:
                    stack.append((child, to))
                    if token[child] >= 0:
                        steps[to] = 1
        return list(steps.items())

    def _count_inside(self, state: int) -> int:
        prefix, outside = state >> STATE_BITS, state & STATE_MASK
        start, end = utf8.span(prefix)
        best = NEVER
        starts, kinds = self._dfa.partition
        low, high = np.searchsorted(starts, [start, end - 1], "right")
        for index in range(low - 1, high):
            if to := self._dfa.after(outside, int(kinds[index])):
                char = chr(max(int(starts[index]), start))
                rest = char.encode()[-utf8.num_missing(prefix) :]
                best = min(best, self._vocabulary.spell(rest) + int(self.num_tokens[to]))
        return best


def _settle(counts: list[int], steps: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """Lower the counts, states near the end first, until no step makes any lower."""
    is_settled = False
    while not is_settled:
        is_settled = True
        for state, after in steps:
            best = min([cost + counts[to] for to, cost in after], default=NEVER)
            if best < counts[state]:
                counts[state] = best
                is_settled = False
