"""The radix cache made worse on purpose, for ablations: for a while, for caches of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forkroot.benchmarks.common.watch import replaced
from forkroot.core.radix.cache import Lease, Match, RadixCache


@contextmanager
def clipped(share: float) -> Iterator[None]:
    """Only this share of each matched prefix is reused (paper, figure 8 a and b)."""

    def match(action: Any) -> Any:
        def found(cache: RadixCache, namespace: str, tokens: Any, limit: int) -> Match:
            whole = action(cache, namespace, tokens, limit)
            return _cut(whole, int(whole.length * share))

        return found

    original = RadixCache.match

    def acquire(action: Any) -> Any:
        def leased(cache: RadixCache, namespace: str, tokens: Any, limit: int, *rest: Any) -> Lease:
            length = int(original(cache, namespace, tokens, limit).length * share)
            return action(cache, namespace, tokens, length, *rest)  # type: ignore[no-any-return]

        return leased

    with replaced(RadixCache, ("match",), match), replaced(RadixCache, ("acquire",), acquire):
        yield


def _cut(match: Match, length: int) -> Match:
    """A shorter match, which ends inside an edge."""
    return match if length == match.length else Match(length, -1)


class Table:
    """The whole token sequences that ended, by namespace and length: a cache without a tree."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], set[bytes]] = {}
        self._last: dict[int, tuple[str, bytes]] = {}

    def commit(self, lease: Lease, tokens: Any, count: int) -> None:
        """Remember what a lease holds now."""
        key = np.asarray(tokens[:count], np.int32).tobytes()
        self._last[id(lease)] = lease.namespace, key

    def release(self, lease: Lease) -> None:
        """What the lease held last is an entry from now on."""
        namespace, key = self._last.pop(id(lease), ("", b""))
        if key:
            self._entries.setdefault((namespace, len(key) // 4), set()).add(key)

    def longest(self, namespace: str, tokens: Any, limit: int) -> int:
        """Tokens of the longest entry that is a prefix of tokens[:limit]."""
        key = np.asarray(tokens[:limit], np.int32).tobytes()
        lengths = sorted(
            (it for name, it in self._entries if name == namespace and it <= limit), reverse=True
        )
        found = (it for it in lengths if key[: 4 * it] in self._entries[namespace, it])
        return next(found, 0)


@contextmanager
def whole_prompts() -> Iterator[None]:
    """A prefix is reused only where it is a whole sequence of an earlier call ("no tree
    structure"). Storage is shared as in the tree: memory is as small as it can be."""
    table, original = Table(), RadixCache.match

    def match(action: Any) -> Any:
        def found(cache: RadixCache, namespace: str, tokens: Any, limit: int) -> Match:
            whole = action(cache, namespace, tokens, limit)
            return _cut(whole, table.longest(namespace, tokens, whole.length))

        return found

    def acquire(action: Any) -> Any:
        def leased(cache: RadixCache, namespace: str, tokens: Any, limit: int, *rest: Any) -> Lease:
            known = original(cache, namespace, tokens, limit).length
            length = table.longest(namespace, tokens, known)
            return action(cache, namespace, tokens, length, *rest)  # type: ignore[no-any-return]

        return leased

    def commit(action: Any) -> Any:
        def kept(cache: RadixCache, lease: Lease, tokens: Any, slots: Any) -> Any:
            valid = action(cache, lease, tokens, slots)
            table.commit(lease, tokens, len(slots))
            return valid

        return kept

    def release(action: Any) -> Any:
        def ended(cache: RadixCache, lease: Lease) -> None:
            table.release(lease)
            action(cache, lease)

        return ended

    with (
        replaced(RadixCache, ("match",), match),
        replaced(RadixCache, ("acquire",), acquire),
        replaced(RadixCache, ("commit",), commit),
        replaced(RadixCache, ("release",), release),
    ):
        yield
