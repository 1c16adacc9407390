"""A vocabulary as a tree of characters, in arrays that are walked one level at a time.

Knows nothing of constraints. A token may begin inside one character and end inside another: what
completes the first names the root it hangs from, and what begins the last is kept beside the node.
Tokens that are not part of any UTF-8 text are left out; so are tokens without bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..regex import utf8

Ints32: TypeAlias = npt.NDArray[np.int32]


class Trie(NamedTuple):
    """Nodes in breadth-first order; the children of a node lie side by side.

    roots: the bytes that complete a character -> the node where that character ends. b"" is the
      root of tokens that begin between characters.
    levels: [depths + 1] where the nodes of each depth begin, and the end of all.
    parent: [nodes] counted from where the parent's depth begins; -1 for roots.
    first_child, num_children: [nodes]
    token: [nodes] the token that ends at the node, or -1.
    alphabet: [characters] code points that occur, ascending; char: [nodes] index of the last one.
    first_tail, num_tails, has_tails: [nodes] the node's share of the tails.
    tails: the prefixes that occur; tail: [tail tokens] index of each; tail_token: its token.
    duplicates: (token, other token) pairs of the same bytes; only the first is in the tree.
    """

    roots: dict[bytes, int]
    levels: tuple[int, ...]
    parent: npt.NDArray[np.intp]
    first_child: Ints32
    num_children: Ints32
    token: Ints32
    alphabet: Ints32
    char: Ints32
    first_tail: Ints32
    num_tails: Ints32
    has_tails: npt.NDArray[np.bool_]
    tails: tuple[int, ...]
    tail: Ints32
    tail_token: Ints32
    duplicates: Ints32


def build_trie(token_bytes: Sequence[bytes]) -> Trie:
    """The tree of a vocabulary."""
    first: dict[bytes, int] = {}
    duplicates = [
        (first[data], token)
        for token, data in enumerate(token_bytes)
        if data and first.setdefault(data, token) != token
    ]
    splits = [(split, token) for data, token in first.items() if (split := utf8.split(data))]
    splits.append((utf8.Split(b"", "", 0), -1))
    splits.sort()
    return _arrange(_Preorder(splits), np.array(duplicates, np.int32).reshape(-1, 2))


class _Preorder:
    """Nodes as they are met when the tokens are read in order: parents first."""

    def __init__(self, splits: list[tuple[utf8.Split, int]]) -> None:
        self.roots: dict[bytes, int] = {}
        self.depth: list[int] = []
        self.parent: list[int] = []
        self.code: list[int] = []
        self.token: list[int] = []
        self.tails: list[tuple[int, int, int]] = []
        path: list[int] = []
        before = ""
        for split, token in splits:
            if split.head not in self.roots:
                self.roots[split.head] = self._add(-1, 0, 0)
                path, before = [self.roots[split.head]], ""
            shared = num_shared(before, split.text)
            del path[shared + 1 :]
            for char in split.text[shared:]:
                path.append(self._add(path[-1], len(path), ord(char)))
            before = split.text
            if split.tail:
                self.tails.append((path[-1], split.tail, token))
            elif token >= 0:
                self.token[path[-1]] = token

    def _add(self, parent: int, depth: int, code: int) -> int:
        self.parent.append(parent)
        self.depth.append(depth)
        self.code.append(code)
        self.token.append(-1)
        return len(self.parent) - 1


def num_shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Length of the common beginning."""
    if first == second[: len(first)]:
        return len(first)
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _arrange(nodes: _Preorder, duplicates: Ints32) -> Trie:
    count = len(nodes.parent)
    depth = np.array(nodes.depth)
    order = np.argsort(depth, kind="stable")
    depth = depth[order]
    levels = np.searchsorted(depth, np.arange(depth[-1] + 1))
    rank = np.empty(count + 1, np.int32)
    rank[order] = np.arange(count)
    rank[-1] = -1  # the parent of a root
    parent = rank[np.array(nodes.parent)[order]]
    num_children = np.bincount(parent[parent >= 0], minlength=count)
    alphabet, char = np.unique(np.array(nodes.code)[order], return_inverse=True)
    tails = np.array([(rank[node], tail, token) for node, tail, token in nodes.tails], np.int32)
    tails = tails.reshape(-1, 3)
    tails = tails[np.argsort(tails[:, 0], kind="stable")]
    kinds, tail = np.unique(tails[:, 1], return_inverse=True)
    num_tails = np.bincount(tails[:, 0], minlength=count)
    return Trie(
        roots={head: int(rank[node]) for head, node in nodes.roots.items()},
        levels=(*levels.tolist(), count),
        parent=np.where(depth > 0, parent - levels[depth - 1], -1),
        first_child=np.searchsorted(parent, np.arange(count)).astype(np.int32),
        num_children=num_children.astype(np.int32),
        token=np.array(nodes.token, np.int32)[order],
        alphabet=alphabet.astype(np.int32),
        char=char.reshape(-1).astype(np.int32),
        first_tail=(np.cumsum(num_tails) - num_tails).astype(np.int32),
        num_tails=num_tails.astype(np.int32),
        has_tails=num_tails > 0,
        tails=tuple(kinds.tolist()),
        tail=tail.reshape(-1).astype(np.int32),
        tail_token=tails[:, 2].copy(),
        duplicates=duplicates,
    )
