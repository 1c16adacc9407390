"""Which tokens an automaton can take from a state: a walk down the vocabulary's tree.

The tree is walked one level at a time, all live branches at once; where a state has few ways, one
by one. Nothing is kept but what holds for every state of one (automaton, vocabulary) pair.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..regex import utf8
from ..regex.dfa import STATE_BITS, STATE_MASK, Dfa, Ints
from .trie import Ints32
from .vocabulary import Vocabulary

MAX_KINDS_PICKED = 8
MAX_NARROW = 8
DENSE = 4
_BYTES_OF_EDGE = 150


class Reached(NamedTuple):
    """Where a walk came: tokens that end between characters, and tokens that end inside one.

    states: [tokens], inside_states: [inside tokens] the state after each.
    """

    tokens: Ints32
    states: Ints
    inside_tokens: Ints32
    inside_states: Ints


class Walker:
    """Walks of one automaton through one vocabulary."""

    def __init__(self, dfa: Dfa, vocabulary: Vocabulary) -> None:
        self._dfa = dfa
        self._vocabulary = vocabulary
        self._trie = trie = vocabulary.trie
        self._table = dfa.table.reshape(-1)
        kinds = dfa.kinds_of(trie.alphabet)
        self._kind = kinds.astype(np.min_scalar_type(dfa.num_classes))[trie.char]
        self._root = trie.roots[b""]
        self._narrow = _NarrowEdges(dfa)
        self._root_edges, self._root_starts = self._sort_root()
        self._tail_codes = np.array(trie.tails, np.intp)
        self._tail_group, self._can_end_in = self._tail_table()
        self._can_end_inside = self._can_end_in.any(axis=1)

    @property
    def num_bytes(self) -> int:
        """Memory of what walks need."""
        kept = self._kind, self._can_end_in, self._root_edges
        return sum(it.nbytes for it in kept) + self._narrow.num_bytes

    def reach(self, state: int) -> Reached:
        """Walk the tree from a state."""
        if state <= STATE_MASK:
            return self._ends(*self._walk_narrow(self._root, state))
        found: list[tuple[Ints, Ints]] = []
        tokens, inside = [], []
        missing = utf8.num_missing(state >> STATE_BITS)
        for head, node in self._trie.roots.items():
            after = self._dfa.run(state, head) if 0 < len(head) <= missing else 0
            if after > STATE_MASK and self._trie.token[node] >= 0:
                tokens.append(self._trie.token[node])
                inside.append(after)
            elif 0 < after <= STATE_MASK:
                found.append(self._walk_narrow(node, after))
        nodes = np.concatenate([nodes for nodes, _ in found] or [np.zeros(0, np.intp)])
        states = np.concatenate([states for _, states in found] or [np.zeros(0, np.intp)])
        reached = self._ends(nodes, states)
        return reached._replace(
            inside_tokens=np.append(reached.inside_tokens, np.array(tokens, np.int32)),
            inside_states=np.append(reached.inside_states, np.array(inside, np.intp)),
        )

    def _walk_narrow(self, node: int, state: int) -> tuple[Ints, Ints]:
        """All (node, state) that are reached from one: one by one while there are few ways, then
        by whole levels."""
        found = [(node, state)]
        wide: dict[int, list[tuple[int, int]]] = {}
        for node, state in found:
            edges = self._narrow.of(state)
            if edges is None:
                depth = bisect(self._trie.levels, node) - 1
                wide.setdefault(depth, []).append((node, state))
                continue
            for char, to in edges:
                child = self._vocabulary.child(node, char)
                if child >= 0:
                    found.append((child, to))
        pairs = np.array(found, np.intp).T
        parts = [(pairs[0], pairs[1])]
        for depth, seeds in wide.items():
            pairs = np.array(seeds, np.intp).T
            parts += self._walk(pairs[0], pairs[1], depth)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _walk(self, nodes: Ints, states: Ints, depth: int) -> Iterator[tuple[Ints, Ints]]:
        """The levels below nodes of one depth."""
        width = self._dfa.num_classes
        while nodes.size and depth < len(self._trie.levels) - 2:
            edges, cells = self._edges(nodes, states * width, depth)
            to = self._table.take(cells)
            keep = np.flatnonzero(to)
            nodes, states = edges.take(keep), to.take(keep).astype(np.intp)
            yield nodes, states
            depth += 1

    def _edges(self, nodes: Ints, rows: Ints, depth: int) -> tuple[Ints, Ints]:
        """Children of nodes of one depth, and the cell of the table that leads to each.

        Where that is a good part of the next level, all of it, with the dead row for the others.
        """
        trie = self._trie
        if nodes.size == 1 and nodes[0] == self._root:
            edges = self._first_edges(int(rows[0]) // self._dfa.num_classes)
            return edges, rows[0] + self._kind.take(edges)
        start, middle, end = trie.levels[depth : depth + 3]
        if nodes.size * DENSE > middle - start:
            here = np.zeros(middle - start, np.intp)
            here[nodes - start] = rows
            cells = here.take(trie.parent[middle:end])
            cells += self._kind[middle:end]
            return np.arange(middle, end), cells
        counts = trie.num_children.take(nodes)
        edges = _ranges(trie.first_child.take(nodes), counts)
        return edges, np.repeat(rows, counts) + self._kind.take(edges)

    def _ends(self, nodes: Ints, states: Ints) -> Reached:
        """Of the nodes that were walked, those that end tokens, and their tails."""
        trie = self._trie
        tokens = trie.token.take(nodes)
        ends = np.flatnonzero(tokens >= 0)
        states_ended = states.take(ends)
        with_tails = np.flatnonzero(self._can_end_inside.take(states) & trie.has_tails.take(nodes))
        if not with_tails.size:
            return Reached(tokens.take(ends), states_ended, tokens[:0], states[:0])
        counts = trie.num_tails[nodes[with_tails]]
        tails = _ranges(trie.first_tail[nodes[with_tails]], counts)
        tail_states = np.repeat(states[with_tails], counts)
        live = self._can_end_in[tail_states, self._tail_group[trie.tail[tails]]]
        tails, tail_states = tails[live], tail_states[live]
        inside = self._tail_codes[trie.tail[tails]] << STATE_BITS | tail_states
        return Reached(tokens.take(ends), states_ended, trie.tail_token[tails], inside)

    def _first_edges(self, state: int) -> Ints:
        """The root's edges that may be live: all, or those of the few classes that are."""
        kinds = np.flatnonzero(self._dfa.table[state])
        if len(kinds) > MAX_KINDS_PICKED:
            return self._root_edges
        starts = self._root_starts
        picked = [self._root_edges[starts[kind] : starts[kind + 1]] for kind in kinds.tolist()]
        return np.concatenate(picked) if picked else self._root_edges[:0]

    def _sort_root(self) -> tuple[Ints, list[int]]:
        """The root's edges by their class, and where each class begins."""
        first = int(self._trie.first_child[self._root])
        edges = np.arange(first, first + int(self._trie.num_children[self._root]))
        order = np.argsort(self._kind[edges], kind="stable")
        kinds = self._kind[edges[order]]
        starts = np.searchsorted(kinds, np.arange(self._dfa.num_classes + 1))
        return edges[order], starts.tolist()

    def _tail_table(self) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """[tails] the group of each, and [states, groups] whether a token may end so.

        A group are tails after which characters of the same classes may come.
        """
        starts, kinds = self._dfa.partition
        seen = np.zeros((len(kinds) + 1, self._dfa.num_classes), np.int32)
        seen[np.arange(1, len(kinds) + 1), kinds] = 1
        np.cumsum(seen, axis=0, out=seen)
        spans = np.array([utf8.span(tail) for tail in self._trie.tails], np.intp).reshape(-1, 2)
        low = np.searchsorted(starts, spans[:, 0], "right") - 1
        high = np.searchsorted(starts, spans[:, 1] - 1, "right")
        groups, group = np.unique(seen[high] > seen[low], axis=0, return_inverse=True)
        live = (self._dfa.table > 0).astype(np.float32)
        with np.errstate(invalid="ignore"):  # some BLAS reads beyond the arrays, and sets the flag
            return group.reshape(-1), live @ groups.astype(np.float32).T > 0


class _NarrowEdges:
    """The edges of states that have few, each of one character: found for the states that walks
    come to, as those of all states would take long."""

    def __init__(self, dfa: Dfa) -> None:
        self._table, self._first_chars = dfa.table, dfa.first_chars
        self._is_single = dfa.class_sizes == 1
        self._known: dict[int, list[tuple[str, int]] | None] = {}
        self._num_edges = 0

    @property
    def num_bytes(self) -> int:
        """Memory of the edges that were found, about."""
        return _BYTES_OF_EDGE * self._num_edges

    def of(self, state: int) -> list[tuple[str, int]] | None:
        """(character, next state) pairs; None for a state with many edges."""
        if state in self._known:
            return self._known[state]
        edges = self._known[state] = self._find(state)
        self._num_edges += len(edges or ())
        return edges

    def _find(self, state: int) -> list[tuple[str, int]] | None:
        row = self._table[state]
        kinds = row.nonzero()[0]
        if len(kinds) > MAX_NARROW or not self._is_single[kinds].all():
            return None
        chars = map(chr, self._first_chars[kinds].tolist())
        return list(zip(chars, row[kinds].tolist(), strict=True))


def _ranges(starts: npt.NDArray[np.integer], counts: npt.NDArray[np.integer]) -> Ints:
    """`start, start + 1, ...` for each start, as many as its count, one after another."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    ranges: Ints = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return ranges
