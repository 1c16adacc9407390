"""Forks: a hinted root is pinned in the cache until its branches are done.

A pin is a lease. It is counted down as branches finish, and released by count or by time-out, or
at once when the pool is needed for something else: a hint may be wrong and must cost only time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..api.protocol import ForkHint
from ..radix.cache import Lease, RadixCache
from .sequence import Job, Sequence


@dataclass(slots=True)
class _Root:
    lease: Lease
    num_left: int | None
    expires: float


class Roots:
    """The pinned roots of one cache, by namespace (or whose names these are) and name.

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

    def release_all(self) -> None:
        """Release every root, because the cache is to be emptied."""
        for key in list(self._roots):
            self.unpin(*key)

    def held(self) -> dict[str, int]:
        """Tokens of pinned roots by tenant."""
        found: dict[str, int] = {}
        for (space, _), entry in self._roots.items():
            found[_tenant(space)] = found.get(_tenant(space), 0) + entry.lease.length
        return found

    def release_one(self, tenant: str | None = None) -> bool:
        """Release a root, because the pool is needed: of this tenant (None: of the one whose roots
        have most tokens), the one that expires first. False if none is pinned."""
        held = self.held()
        if tenant is None:
            tenant = max(held, key=held.__getitem__, default="")
        if tenant not in held:
            return False
        found = (key for key in self._roots if _tenant(key[0]) == tenant)
        self.unpin(*min(found, key=lambda key: self._roots[key].expires))
        return True


class RootPinning:
    """Applies the hints of jobs to the cache: pins roots when the sequences that computed them end,
    and counts the cached tokens that belong to a root. is_on: whether hints are followed at all."""

    def __init__(self, cache: RadixCache, roots: Roots, is_on: bool) -> None:
        self._cache = cache
        self._roots = roots
        self._is_on = is_on

    def pin(self, sequence: Sequence, now: float) -> None:
        """Pin what an ended sequence leaves in the cache, if branches wait for this root."""
        job = sequence.job
        hint = self._hint(job)
        length = sequence.prompt_len if job.is_prefill_only else job.root_len
        if hint is None or not hint.root or not length or sequence.index or sequence.is_aborted:
            return
        if job.is_prefill_only or not self._roots.has(_space(job), hint.root):
            lease = self._cache.acquire(job.call.namespace, sequence.ids[:length], length)
            self._roots.pin(_space(job), hint.root, lease, hint.branches, now)

    def count_root_tokens(self, sequence: Sequence) -> int:
        """The cached tokens of a sequence that belong to the root of its hint; 0 where that was not
        computed before."""
        job = sequence.job
        hint = self._hint(job)
        if hint is None or job.is_prefill_only:
            return 0
        length = job.root_len or self._roots.length(_space(job), hint.root)
        return min(sequence.cached_len or 0, length)

    def finish_branch(self, job: Job, now: float) -> None:
        """A branch is done with its root."""
        hint = self._hint(job)
        if hint is not None and not job.is_prefill_only:
            self._roots.finish_branch(_space(job), hint.root, now)

    def _hint(self, job: Job) -> ForkHint | None:
        return job.call.hint if self._is_on else None


def _space(job: Job) -> str:
    """Within which the names of roots are known: tenants may share a namespace of the cache, but no
    names."""
    call = job.call
    return call.namespace if call.tenant is None else f"{call.tenant}\0{call.namespace}"


def _tenant(space: str) -> str:
    """Whose space it is."""
    return space.partition("\0")[0]
