"""A vocabulary as constraints see it: bytes, and which tokens spell or begin with them.

Built once for a model and shared by all constraints. Knows nothing of automata.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...api.protocol import InvalidModel
from ..regex.utf8 import CONTINUATION
from .trie import Ints32, Trie, build_trie

Mask: TypeAlias = npt.NDArray[np.int32]

NEVER = 1 << 29
HEAD = 4
MAX_SPELLED = 4096


class Vocabulary:
    """The bytes of each token.

    token_bytes: [vocabulary] empty for special tokens, which no constraint allows.
    end_ids: tokens that end an answer; allowed exactly where it may end.
    is_end: [vocabulary] 1 for these.
    size: tokens; num_words: of 32 bits that a mask has.
    ids: the first token of each byte string that is one. longest: bytes of the longest token.
    node_token: [nodes of the tree] as `Trie.token`.
    """

    def __init__(self, token_bytes: Sequence[bytes], end_ids: Collection[int]) -> None:
        self.token_bytes = tuple(token_bytes)
        self.size = len(self.token_bytes)
        self.num_words = -(-self.size // 32)
        end_ids = frozenset(end_ids)
        for token in end_ids:
            if not 0 <= token < self.size:
                raise InvalidModel(f"end token {token} is not in a vocabulary of {self.size}")
        self.is_end = bytes(token in end_ids for token in range(self.size))
        self.end_ids = np.array(sorted(set(end_ids)), np.int32)
        self.trie: Trie = build_trie(
            [b"" if token in end_ids else data for token, data in enumerate(self.token_bytes)]
        )
        self._char_ranks = {chr(code): i for i, code in enumerate(self.trie.alphabet.tolist())}
        self.node_token = memoryview(self.trie.token.data)
        self._char = memoryview(self.trie.char.data)
        self._first_child = memoryview(self.trie.first_child.data)
        self._num_children = memoryview(self.trie.num_children.data)
        pairs = [(data, token) for token, data in enumerate(self.token_bytes) if data]
        self.ids = dict(reversed(pairs))
        pairs.sort()
        self._sorted = [data for data, _ in pairs]
        self._sorted_tokens = [token for _, token in pairs]
        self.longest = max(map(len, self.token_bytes), default=0)
        self.has_continuations = all(bytes([byte]) in self.ids for byte in CONTINUATION)
        self._num_tokens: dict[bytes, int] = {}

    def child(self, node: int, char: str) -> int:
        """The node of the tree that a character leads to, or -1."""
        rank = self._char_ranks.get(char, -1)
        start = self._first_child[node]
        end = start + self._num_children[node]
        child = bisect_left(self._char, rank, start, end)
        return child if child < end and self._char[child] == rank else -1

    def spell(self, data: bytes) -> int:
        """The fewest tokens that are these bytes together; NEVER where there are none."""
        known = self._num_tokens.get(data)
        if known is None:
            ids, reach = self.ids, self._reach
            counts = [0] + [NEVER] * len(data)
            for start in range(len(data)):
                longest = reach.get(data[start : start + HEAD], HEAD - 1)
                for end in range(start + 1, min(len(data), start + longest) + 1):
                    if counts[start] + 1 < counts[end] and data[start:end] in ids:
                        counts[end] = counts[start] + 1
            if len(self._num_tokens) >= MAX_SPELLED:
                self._num_tokens.clear()
            known = self._num_tokens[data] = counts[-1]
        return known

    def forget(self) -> None:
        """Forget what `spell` has found."""
        self._num_tokens.clear()

    @cached_property
    def _reach(self) -> dict[bytes, int]:
        """Bytes of the longest token that begins with these HEAD bytes."""
        found: dict[bytes, int] = {}
        for data in self.ids:
            head = data[:HEAD]
            found[head] = max(found.get(head, 0), len(data))
        return found

    @cached_property
    def char_tokens(self) -> Ints32:
        """Code points of the characters that are tokens, ascending."""
        alphabet = self.trie.alphabet
        return alphabet[[chr(code).encode() in self.ids for code in alphabet.tolist()]]

    def beginning_with(self, data: bytes) -> list[int]:
        """Tokens that begin with these bytes, or are these bytes; all for b""."""
        start = bisect_left(self._sorted, data)
        end = bisect_left(self._sorted, _after(data)) if data.strip(b"\xff") else None
        return self._sorted_tokens[start:end]

    def begins(self, data: bytes) -> bool:
        """Whether some token begins with these bytes, or is these bytes."""
        return self._starts_at(bisect_left(self._sorted, data), data)

    def is_extended(self, data: bytes, allows: Callable[[bytes], bool] | None = None) -> bool:
        """Whether some token begins with these bytes and has more. allows: whether something may
        follow them, and so may its beginnings; None: anything may."""
        rank = bisect_right(self._sorted, data)
        while self._starts_at(rank, data):
            rest = self._sorted[rank][len(data) :]
            if allows is None or allows(rest):
                return True
            sizes = range(1, len(rest))
            refused = next((rest[:size] for size in sizes if not allows(rest[:size])), rest)
            rank = bisect_right(self._sorted, data + refused + b"\xff" * self.longest, rank)
        return False

    def reaching(self, data: bytes) -> list[int]:
        """Places in a text from which a token, going by its first HEAD bytes, may get to the end
        of the text, or beyond."""
        reach, size = self._reach, len(data)
        near = max(0, size - HEAD)
        far = range(max(0, size - self.longest), near)
        found = [at for at in far if reach.get(data[at : at + HEAD], 0) >= size - at]
        return [*found, *range(near, size)]

    def spelling(self, mask: Mask, required: bytes) -> Mask:
        """Of the tokens in a mask, those by which the required bytes can come next."""
        if not required:
            return mask
        flags = self.flags(self.beginning_with(required))
        for end in range(1, min(len(required), self.longest + 1)):
            flags[self.spelled(required[:end])] = True
        return mask & self.pack(flags)

    def beginnings(self, data: bytes) -> dict[int, bytes]:
        """The tokens that are a beginning of these bytes, and what each leaves of them."""
        sizes = range(1, min(len(data), self.longest) + 1)
        ids = self.ids
        return {ids[data[:size]]: data[size:] for size in sizes if data[:size] in ids}

    def flags(self, tokens: Sequence[int] | Ints32) -> npt.NDArray[np.bool_]:
        """[vocabulary, rounded up to words] true for these tokens."""
        flags = np.zeros(32 * self.num_words, bool)
        flags[tokens] = True
        return flags

    def pack(self, flags: npt.NDArray[np.bool_]) -> Mask:
        """[num_words] the flags as bits: token `i` is bit `i % 32` of word `i // 32`."""
        return np.packbits(flags, bitorder="little").view(np.int32)

    def mask_of(self, tokens: Iterable[int]) -> Mask:
        """[num_words] these tokens."""
        return self.pack(self.flags([*tokens]))

    def _starts_at(self, rank: int, data: bytes) -> bool:
        return rank < len(self._sorted) and self._sorted[rank].startswith(data)

    def tokens(self, mask: Mask) -> list[int]:
        """The tokens whose bits are set."""
        return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()

    def spelled(self, data: bytes) -> list[int]:
        """Tokens that are these bytes."""
        start, end = bisect_left(self._sorted, data), bisect_right(self._sorted, data)
        return self._sorted_tokens[start:end]


def left_over(required: bytes, data: bytes) -> bytes | None:
    """What is still required after a token of these bytes; None where it does not fit."""
    if data.startswith(required):
        return b""
    return required[len(data) :] if required.startswith(data) else None


def _after(data: bytes) -> bytes:
    """The first byte string that comes after all that begin with `data`, which is not all 0xff."""
    head = data.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1])
