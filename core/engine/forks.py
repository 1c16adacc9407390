"""Forks and pauses: a hinted root is pinned in the cache until its branches are done, and what a
program wrote until its next call.

A pin is a lease. That of a root is counted down as branches finish, and released by count or by
time-out, or at once when the pool is needed for something else: a hint may be wrong and must cost
only time, and only its owner's. So the pins of a tenant hold no more than its share of a part of
the pool, and less where few of the branches that it announces come. Programs that came first keep
what they wrote: of more programs than fit, in turn, none would find anything again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..api.protocol import Call, ForkHint
from ..radix.cache import Lease, RadixCache
from .accounting.trust import Trust
from .preemption import Holders
from .sequence import Job, Sequence

PINNED = 0.5  # of the pool: what tenants pin by hints holds no more
LEAST = 128  # tokens of its own for which a program's text is held: less is computed again
GRACE = 1.0  # seconds that a program's next call may come late
UNTRUSTED = 0.2  # of what a tenant may pin, where none of the branches that it announces come
Space: TypeAlias = tuple[str, str]  # owner and namespace, within which names are known
_HELD = "\0"  # begins the names of what programs hold


@dataclass(slots=True)
class _Root:
    """due: when its program is expected to call again; None: it is the root of a fork. size: tokens
    that nothing else held when it was pinned."""

    lease: Lease
    num_left: int | None
    expires: float
    due: float | None = None
    size: int = 0


class Roots:
    """The pinned roots of one cache, by space and name.

    cache: whose leases they are. timeout: seconds after its last use that a root stays pinned.
    share: of all that is pinned, what a tenant's may be; None: all. trust: how many of the branches
    that tenants announce come.
    """

    def __init__(
        self, cache: RadixCache, timeout: float, share: Callable[[str], float] = lambda name: 1.0
    ) -> None:
        self._cache = cache
        self._timeout = timeout
        self._share = share
        self._roots: dict[tuple[Space, str], _Root] = {}
        self.trust = Trust()

    def __len__(self) -> int:
        return len(self._roots)

    def pin(self, space: Space, root: str, lease: Lease, branches: int | None, now: float) -> None:
        """Keep `lease` (owned from now on) until `branches` branches have left, or the time-out."""
        self.unpin(space, root)
        if branches == 0 or lease.length == 0:
            self._cache.release(lease)
            return
        entry = _Root(lease, branches, now + self._timeout, size=self._cache.count_sole(lease))
        self._keep((space, root), entry)

    def hold(self, space: Space, program: str, lease: Lease, due: float) -> bool:
        """Keep what a program wrote (`lease` is owned from now on) until it is expected to call
        again; False where it is little, or there is no room for it."""
        self.resume(space, program)
        size = self._cache.count_sole(lease)
        if size < LEAST or self._excess(space[0], size) > 0:
            self._cache.release(lease)
            return False
        entry = _Root(lease, None, due + min(GRACE, self._timeout), due, size)
        self._roots[space, _HELD + program] = entry
        return True

    def resume(self, space: Space, program: str) -> None:
        """A program calls again, or has ended: what it wrote is held no longer."""
        self.unpin(space, _HELD + program)

    def _keep(self, key: tuple[Space, str], entry: _Root) -> None:
        """Pin a root, in the place of others of its tenant that are too much then."""
        tenant = key[0][0]
        while self._excess(tenant, entry.size) > 0 and self.release_one(tenant):
            continue
        self._roots[key] = entry

    def _excess(self, tenant: str, size: int) -> float:
        """Tokens by which a tenant's pins are more than its share with so many more."""
        own = sum(it.size for (space, _), it in self._roots.items() if space[0] == tenant)
        most = PINNED * self._cache.capacity * max(UNTRUSTED, self.trust.of(tenant))
        return own + size - most * self._share(tenant)

    def has(self, space: Space, root: str) -> bool:
        """Whether this root is pinned."""
        return (space, root) in self._roots

    def length(self, space: Space, root: str) -> int:
        """Tokens of this root; 0 where it is not pinned."""
        entry = self._roots.get((space, root))
        return 0 if entry is None else entry.lease.length

    def finish_branch(self, space: Space, root: str, now: float) -> None:
        """A branch of this root is done; the last one releases it. Unknown roots are ignored."""
        entry = self._roots.get((space, root))
        if entry is None:
            return
        entry.expires = now + self._timeout
        if entry.num_left is not None:
            entry.num_left -= 1
            if entry.num_left <= 0:
                self.unpin(space, root)

    def unpin(self, space: Space, root: str) -> None:
        """Release this root, if it is pinned."""
        entry = self._roots.pop((space, root), None)
        if entry is not None:
            self._cache.release(entry.lease)

    def expire(self, now: float) -> None:
        """Release every root whose time is over."""
        self.trust.expire(now)
        for key in [key for key, entry in self._roots.items() if entry.expires <= now]:
            self.unpin(*key)

    @property
    def timeout(self) -> float:
        """Seconds after its last use that a root stays pinned."""
        return self._timeout

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
            size = entry.lease.length if entry.due is None else entry.size
            found[space[0]] = found.get(space[0], 0) + size
        return found

    def make_room(
        self,
        missing: int,
        owner: str,
        holders: Callable[[Mapping[str, int]], Holders],
        is_overdue: bool,
    ) -> int:
        """Release what tenants pin that hold more than this owner, and, for one that is overdue,
        what it pins itself, as far as slots are missing; how many became available. holders: of
        slots, and of these pins beside them."""
        before = self._cache.num_available
        while self._roots and self._cache.num_available - before < missing:
            name = holders(self.held()).largest
            if (name == owner and not is_overdue) or not self.release_one(name):
                break
        return self._cache.num_available - before

    def release_one(self, tenant: str | None = None) -> bool:
        """Release a pin, because the pool is needed: of this tenant (None: of the one whose pins
        have most tokens), what is used last of what programs hold, else the root that expires
        first. False if nothing is pinned."""
        held = self.held()
        if tenant is None:
            tenant = max(held, key=held.__getitem__, default="")
        if tenant not in held:
            return False
        found = {key: it for key, it in self._roots.items() if key[0][0] == tenant}
        self.unpin(*min(found, key=lambda key: _release_order(found[key])))
        return True


class RootPinning:
    """Applies the hints of jobs to the cache: pins roots when the sequences that computed them end,
    and counts the cached tokens that belong to a root. is_on: whether hints are followed at all."""

    def __init__(self, cache: RadixCache, roots: Roots, is_on: bool) -> None:
        self._cache = cache
        self._roots = roots
        self._is_on = is_on
        # Roots that are sent ahead, by space and name: branches to come, of each call that does.
        self._expected: dict[tuple[Space, str], dict[Job, int | None]] = {}

    def expect(self, job: Job) -> None:
        """A call has come; if it sends a root ahead, branches may end before it is computed."""
        hint = self._hint(job)
        if hint is None or not hint.root:
            return
        key = space_of(job), hint.root
        is_branch = not job.is_prefill_only
        self._roots.trust.arrive(job, key, key[0][0], hint.branches or 0, is_branch)
        if not is_branch:
            self._expected.setdefault(key, {})[job] = hint.branches

    def forget(self, job: Job, now: float) -> None:
        """A call has ended."""
        hint = self._hint(job)
        if hint is None or not hint.root:
            return
        key = space_of(job), hint.root
        self._roots.trust.leave(job, key, key[0][0], now)
        if not job.is_prefill_only:
            return
        expected = self._expected.get(key, {})
        expected.pop(job, None)
        if not expected:
            self._expected.pop(key, None)

    def pin(self, sequence: Sequence, now: float) -> None:
        """Pin what an ended sequence leaves in the cache, if branches wait for this root."""
        job = sequence.job
        hint = self._hint(job)
        length = sequence.prompt_len if job.is_prefill_only else job.root_len
        if hint is None or not hint.root or not length or sequence.index or sequence.is_aborted:
            return
        if job.is_prefill_only or not self._roots.has(space_of(job), hint.root):
            lease = self._cache.acquire(job.call.namespace, sequence.ids[:length], length)
            space = space_of(job)
            num_left = self._expected.get((space, hint.root), {}).get(job, hint.branches)
            self._roots.pin(space, hint.root, lease, num_left, now)

    def count_root_tokens(self, sequence: Sequence) -> int:
        """The cached tokens of a sequence that belong to the root of its hint; 0 where that was not
        computed before."""
        job = sequence.job
        hint = self._hint(job)
        if hint is None or job.is_prefill_only:
            return 0
        return min(sequence.cached_len or 0, self.root_len(job))

    def root_len(self, job: Job) -> int:
        """Tokens of the root that the hint of a job names; 0 where they are not known."""
        hint = self._hint(job)
        if hint is None:
            return 0
        return job.root_len or self._roots.length(space_of(job), hint.root)

    def finish_branch(self, job: Job, now: float) -> None:
        """A branch is done with its root."""
        hint = self._hint(job)
        if hint is None or not hint.root or job.is_prefill_only:
            return
        space = space_of(job)
        self._roots.finish_branch(space, hint.root, now)
        expected = self._expected.get((space, hint.root), {})
        expected.update({ahead: left - 1 for ahead, left in expected.items() if left})

    def _hint(self, job: Job) -> ForkHint | None:
        return job.call.hint if self._is_on else None


def space_of(job: Job) -> Space:
    """Within which the names of roots are known: tenants may share a namespace of the cache, but no
    names."""
    call: Call = job.call
    return call.owner, call.namespace


def _release_order(entry: _Root) -> tuple[bool, float]:
    """Sorts what is to be released first before what is needed sooner."""
    return (True, entry.expires) if entry.due is None else (False, -entry.due)
