"""How likely texts are, summed over the ways in which tokens spell them.

The text after a prompt begins with `c` in disjoint ways: each is a shortest token sequence that
covers `c`. These sequences form a tree. At a node whose tokens spell the beginning of `c`, the
tokens that begin with the rest of `c` cover it: a range of the vocabulary in the order of bytes,
whose mass is one sum. The tokens that are a beginning of the rest lead to child nodes. The tree is
expanded along the tokenizer's own spellings, then heaviest nodes first; what was found and what the
open nodes still hold are two bounds.
Knows nothing of models: the caller passes the distribution of each node to `set_logprobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp, expm1, fsum, inf, log, log1p
from typing import NamedTuple, TypeAlias

import numpy as np

from .trie import Ints32
from .vocabulary import Vocabulary

ROUND = 64
TOLERANCE = 1e-10

Encode: TypeAlias = Callable[[str], Sequence[int]]


class Bounds(NamedTuple):
    """Natural logarithms of a probability that is not below `low` and not above `high`."""

    low: float
    high: float


@dataclass(slots=True, eq=False)
class Node:
    """A node of the tree, whose next token's distribution is requested.

    path: tokens after the prompt. log_mass: of the path. options: places of the options that it is
      a beginning of. tokens: those that lead to children, for which log-probabilities are wanted.
    sets: for each option the tokens that cover the rest of it, whose total is wanted.
    """

    path: tuple[int, ...]
    log_mass: float
    options: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    sets: tuple[Ints32, ...] = ()


@dataclass(slots=True)
class _Found:
    """Log masses of the ways to spell an option: those found, and those of open nodes."""

    masses: list[float] = field(default_factory=list)
    open: dict[Node, None] = field(default_factory=dict)

    def low(self) -> float:
        return log_sum(self.masses)

    def missing(self) -> float:
        return log_sum(node.log_mass for node in self.open)


class Tokenizations:
    """The search for the probabilities of `options` (each not empty; equal ones are one).

    max_nodes: most distributions to request. tolerance: relative width of a bound that is
      narrow enough. encode: text -> tokens. is_canonical: only canonical spellings count, those
      that the tokenizer itself would give for the text so far.
    """

    def __init__(
        self,
        options: Sequence[str],
        vocabulary: Vocabulary,
        max_nodes: int,
        tolerance: float,
        encode: Encode,
        is_canonical: bool = False,
    ) -> None:
        self._options = options
        self._data = [option.encode() for option in options]
        self._vocabulary = vocabulary
        self._tolerance = log(tolerance)
        self._num_left = max_nodes
        self._spellings = (
            _CanonicalSpellings(self._data, vocabulary, encode)
            if is_canonical
            else _AllSpellings(self._data, vocabulary)
        )
        usual = [tuple(encode(option)) for option in options]
        self._usual = {path[:end] for path in usual for end in range(len(path))}
        self._found = [_Found() for _ in options]
        self._pending: set[Node] = set()
        self._open(Node((), 0.0, tuple(range(len(options)))))

    def wanted(self) -> list[Node]:
        """The nodes of the next round, once all of the last one have results; empty at the end."""
        if self._pending:
            return []
        open_options = [found for found in self._found if not self._is_narrow(found)]
        share = max(1, ROUND // max(1, len(open_options)))
        nodes: dict[Node, None] = {}
        for found in open_options:
            nodes |= dict.fromkeys(nlargest(share, found.open, key=self._priority))
        chosen = nlargest(self._num_left, nodes, key=self._priority)
        self._num_left -= len(chosen)
        self._pending.update(chosen)
        return chosen

    def set_logprobs(
        self, node: Node, logprobs: Iterable[float], log_masses: Iterable[float]
    ) -> None:
        """What a node's distribution gives: log-probabilities of its `tokens`, and log of the total
        probability of each of its `sets`."""
        self._pending.remove(node)
        for option, mass in zip(node.options, log_masses, strict=True):
            del self._found[option].open[node]
            if mass > -inf:
                self._found[option].masses.append(node.log_mass + mass)
        for token, logprob in zip(node.tokens, logprobs, strict=True):
            if logprob > -inf:
                path, options = (*node.path, token), self._spellings.options(node, token)
                self._open(Node(path, node.log_mass + logprob, options))

    def bounds(self) -> list[Bounds]:
        """Bounds of each option: that the text begins with it, and not with a longer option that
        begins with it as well."""
        whole = [self._bounds_of(found) for found in self._found]
        parts = [_longer(data, self._data) for data in self._data]
        return [
            _without(whole[index], [whole[other] for other in part])
            for index, part in enumerate(parts)
        ]

    def _priority(self, node: Node) -> tuple[bool, float]:
        return node.path in self._usual, node.log_mass

    def _bounds_of(self, found: _Found) -> Bounds:
        low = found.low()
        return Bounds(low, min(0.0, log_sum((low, found.missing()))))

    def _is_narrow(self, found: _Found) -> bool:
        return not found.open or found.missing() <= found.low() + self._tolerance

    def _open(self, node: Node) -> None:
        node.tokens, node.sets = self._spellings.next(node)
        for option in node.options:
            self._found[option].open[node] = None


class _AllSpellings:
    """All token sequences that spell the options."""

    def __init__(self, options: Sequence[bytes], vocabulary: Vocabulary) -> None:
        self._options = options
        self._vocabulary = vocabulary

    def options(self, node: Node, token: int) -> tuple[int, ...]:
        """Of a node's options, those that its child by this token is a beginning of."""
        data = self._written(node.path) + self._vocabulary.token_bytes[token]
        return tuple(
            index
            for index in node.options
            if self._options[index].startswith(data) and self._options[index] != data
        )

    def next(self, node: Node) -> tuple[tuple[int, ...], tuple[Ints32, ...]]:
        """`Node.tokens` and `Node.sets`."""
        start = len(self._written(node.path))
        rests = [self._options[index][start:] for index in node.options]
        longest = self._vocabulary.longest
        parts = {rest[:end] for rest in rests for end in range(1, min(len(rest), longest + 1))}
        tokens = [token for part in sorted(parts) for token in self._vocabulary.spelled(part)]
        sets = [np.array(self._vocabulary.beginning_with(rest), np.int32) for rest in rests]
        return tuple(tokens), tuple(sets)

    def _written(self, path: Iterable[int]) -> bytes:
        return b"".join([self._vocabulary.token_bytes[token] for token in path])


class _CanonicalSpellings(_AllSpellings):
    """Only token sequences that the tokenizer gives for the text that they spell. A token that ends
    inside a character cannot be checked, and counts."""

    def __init__(self, options: Sequence[bytes], vocabulary: Vocabulary, encode: Encode) -> None:
        super().__init__(options, vocabulary)
        self._encode = encode
        self._paths: dict[tuple[int, ...], dict[int, Ints32]] = {}
        for index, option in enumerate(options):
            for path in self._canonical_paths(option):
                covers = self._covers(path, option[len(self._written(path)) :])
                if len(covers):
                    self._paths.setdefault(path, {})[index] = covers
        self._beginnings = {path[:end] for path in self._paths for end in range(len(path) + 1)}

    def options(self, node: Node, token: int) -> tuple[int, ...]:
        """As of all spellings, but only where a canonical one goes on."""
        path = (*node.path, token)
        return tuple(
            index
            for index in super().options(node, token)
            if any(
                index in covers and found[: len(path)] == path
                for found, covers in self._paths.items()
            )
        )

    def next(self, node: Node) -> tuple[tuple[int, ...], tuple[Ints32, ...]]:
        """`Node.tokens` and `Node.sets`."""
        size = len(node.path)
        tokens = sorted(
            path[size]
            for path in self._beginnings
            if len(path) == size + 1 and path[:size] == node.path
        )
        covers = self._paths.get(node.path, {})
        nothing = np.empty(0, np.int32)
        return tuple(tokens), tuple(covers.get(index, nothing) for index in node.options)

    def _canonical_paths(self, option: bytes) -> set[tuple[int, ...]]:
        """Beginnings of canonical spellings that end before the option does."""
        whole = tuple(self._encode(option.decode()))
        paths = {whole[:end] for end in range(len(whole))}
        for end in range(1, len(option)):
            try:
                paths.add(tuple(self._encode(option[:end].decode())))
            except UnicodeDecodeError:
                continue
        return {path for path in paths if option.startswith(self._written(path))}

    def _covers(self, path: tuple[int, ...], rest: bytes) -> Ints32:
        """Tokens that begin with the rest of an option and go on canonically after `path`."""
        written = self._written(path)
        found = [
            token
            for token in self._vocabulary.beginning_with(rest)
            if self._is_canonical(written, path, token)
        ]
        return np.array(found, np.int32)

    def _is_canonical(self, written: bytes, path: tuple[int, ...], token: int) -> bool:
        try:
            text = (written + self._vocabulary.token_bytes[token]).decode()
        except UnicodeDecodeError:
            return True
        return tuple(self._encode(text)) == (*path, token)


def log_sum(logs: Iterable[float]) -> float:
    """The logarithm of a sum of numbers given by their logarithms; -inf for none."""
    values = [value for value in logs if value > -inf]
    if not values:
        return -inf
    most = max(values)
    return most + log(fsum(exp(value - most) for value in values))


def log_less(whole: float, part: float) -> float:
    """The logarithm of a difference of numbers given by theirs; -inf where nothing is left."""
    if part == -inf:
        return whole
    if part >= whole:
        return -inf
    gap = part - whole
    return whole + (log(-expm1(gap)) if gap > -0.7 else log1p(-exp(gap)))


def _without(whole: Bounds, parts: Sequence[Bounds]) -> Bounds:
    """Bounds of what is left of a mass when disjoint parts are taken away."""
    return Bounds(
        log_less(whole.low, log_sum(part.high for part in parts)),
        log_less(whole.high, log_sum(part.low for part in parts)),
    )


def _longer(data: bytes, options: Sequence[bytes]) -> list[int]:
    """Places of the shortest options that begin with `data` and are longer."""
    found: list[int] = []
    for index in sorted(range(len(options)), key=lambda index: len(options[index])):
        other = options[index]
        is_longer = other.startswith(data) and other != data
        if is_longer and not any(other.startswith(options[known]) for known in found):
            found.append(index)
    return found
