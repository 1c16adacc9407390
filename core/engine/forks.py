"""Forks: a hinted root is pinned in the cache until its branches are done.

A pin is a lease. It is counted down as branches finish, and released by count or by time-out, or
at once when the pool is needed for something else: a hint may be wrong and must cost only time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..radix.cache import Lease, RadixCache


@dataclass(slots=True)
class _Root:
    lease: Lease
    num_left: int | None
    expires: float


class Roots:
    """The pinned roots of one cache, by namespace and name.

    cache: whose leases they are. timeout: seconds after its last use that a root stays pinned.
    """

    def __init__(self, cache: RadixCache, timeout: float) -> None:
        self._cache = cache
        self._timeout = timeout
        self._roots: dict[tuple[str, str], _Root] = {}

    def __len__(self) -> int:
        return len(self._roots)

    def pin(
        self, namespace: str, root: str, lease: Lease, branches: int | None, now: float
    ) -> None:
        """Keep `lease` (owned from now on) until `branches` branches have left, or the time-out."""
        self.unpin(namespace, root)
        if branches == 0 or lease.length == 0:
            self._cache.release(lease)
            return
        self._roots[namespace, root] = _Root(lease, branches, now + self._timeout)

    def has(self, namespace: str, root: str) -> bool:
        """Whether this root is pinned."""
        return (namespace, root) in self._roots

    def length(self, namespace: str, root: str) -> int:
        """Tokens of this root; 0 where it is not pinned."""
        entry = self._roots.get((namespace, root))
        return 0 if entry is None else entry.lease.length

    def finish_branch(self, namespace: str, root: str, now: float) -> None:
        """A branch of this root is done; the last one releases it. Unknown roots are ignored."""
        entry = self._roots.get((namespace, root))
        if entry is None:
            return
        entry.expires = now + self._timeout
        if entry.num_left is not None:
            entry.num_left -= 1
            if entry.num_left <= 0:
                self.unpin(namespace, root)

    def unpin(self, namespace: str, root: str) -> None:
        """Release this root, if it is pinned."""
        entry = self._roots.pop((namespace, root), None)
        if entry is not None:
            self._cache.release(entry.lease)

    def expire(self, now: float) -> None:
        """Release every root whose time is over."""
        for key in [key for key, entry in self._roots.items() if entry.expires <= now]:
            self.unpin(*key)

    def next_expiry(self) -> float | None:
        """When `expire` has something to do next."""
        return min((entry.expires for entry in self._roots.values()), default=None)

    def release_one(self) -> bool:
        """Release the root that expires first, because the pool is needed; False if none is."""
        if not self._roots:
            return False
        self.unpin(*min(self._roots, key=lambda key: self._roots[key].expires))
        return True
