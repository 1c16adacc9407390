"""Tokens of parts of texts that were encoded before, by namespace; the oldest go first."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from typing import TypeAlias

Ids: TypeAlias = "array[int]"  # a tenth of what a tuple of them takes
_Key = tuple[str, str, bool]


class KeptTokens:
    """Tokens of at most so many parts, which have at most `most_size` characters and tokens
    together. Calls of one namespace find what it put here alone. Every method may be called from
    any thread."""

    def __init__(self, most: int, most_size: int) -> None:
        self._most, self._most_size = most, most_size
        self._kept: dict[_Key, Ids] = {}
        self._size = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, namespace: str, part: str, is_first: bool) -> Ids | None:
        """The tokens of a part of a text. is_first: the text begins with it."""
        return self._kept.get((namespace, part, is_first))

    def put(self, namespace: str, part: str, is_first: bool, ids: Iterable[int]) -> None:
        """Keep the tokens of a part."""
        key, kept = (namespace, part, is_first), array("i", ids)
        with self._lock:
            self._forget(key)
            self._kept[key] = kept
            self._size += _size(key, kept)
            while len(self._kept) > self._most or self._size > self._most_size:
                self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        if (ids := self._kept.pop(key, None)) is not None:
            self._size -= _size(key, ids)


def _size(key: _Key, ids: Ids) -> int:
    return len(key[1]) + len(ids)
