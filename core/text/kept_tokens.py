"""Tokens of parts of texts that were encoded before, by namespace; the oldest go first."""

from __future__ import annotations

import threading

Ids = tuple[int, ...]
_Key = tuple[str, str, bool]


class KeptTokens:
    """Tokens of at most so many parts. Calls of one namespace find what it put here alone. Every
    method may be called from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[_Key, Ids] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, namespace: str, part: str, is_first: bool) -> Ids | None:
        """The tokens of a part of a text. is_first: the text begins with it."""
        return self._kept.get((namespace, part, is_first))

    def put(self, namespace: str, part: str, is_first: bool, ids: Ids) -> None:
        """Keep the tokens of a part."""
        with self._lock:
            self._kept[namespace, part, is_first] = ids
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
