"""Tokens of parts of texts that were encoded before, by namespace; the oldest go first."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from sys import getsizeof
from typing import TypeAlias

Ids: TypeAlias = "array[int]"  # a tenth of what a tuple of them takes
_Key = tuple[str, str, bool]
_RECORD_BYTES = 200  # of a part beside its text and its tokens


class KeptTokens:
    """Tokens of at most so many parts, in at most `most_bytes` of memory. Calls of one namespace
    find what it put here alone. Every method may be called from any thread."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: dict[_Key, Ids] = {}
        self._num_bytes = 0
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
            self._num_bytes += _num_bytes(key, kept)
            while len(self._kept) > self._most or self._num_bytes > self._most_bytes:
                self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        if (ids := self._kept.pop(key, None)) is not None:
            self._num_bytes -= _num_bytes(key, ids)


def _num_bytes(key: _Key, ids: Ids) -> int:
    return getsizeof(key[1]) + getsizeof(ids) + _RECORD_BYTES
