"""Applies fork hints: pins roots in the cache when the sequences that computed them end, releases
them when their branches are done, and counts the cached tokens that belong to a root."""

from __future__ import annotations

from ..api.protocol import ForkHint
from ..radix.cache import RadixCache
from .forks import Roots
from .sequence import Job, Sequence


class Pins:
    """The hints of jobs, acted upon. is_on: whether they are followed at all."""

    def __init__(self, cache: RadixCache, roots: Roots, is_on: bool) -> None:
        self._cache = cache
        self._roots = roots
        self._is_on = is_on

    def pin(self, sequence: Sequence, now: float) -> None:
        """Pin what an ended sequence leaves in the cache, if branches wait for this root."""
        job = sequence.job
        hint = self._hint(job)
        length = sequence.prompt_len if job.is_plant else job.root_len
        if hint is None or not length or sequence.index or sequence.is_aborted:
            return
        namespace = job.call.namespace
        if job.is_plant or not self._roots.has(namespace, hint.root):
            lease = self._cache.acquire(namespace, sequence.ids[:length], length)
            self._roots.pin(namespace, hint.root, lease, hint.branches, now)

    def owed(self, sequence: Sequence) -> int:
        """Of the tokens that a sequence found in the cache, those of the root that its hint names:
        none, where nobody has computed that before."""
        job = sequence.job
        hint = self._hint(job)
        if hint is None or job.is_plant:
            return 0
        length = job.root_len or self._roots.length(job.call.namespace, hint.root)
        return min(sequence.cached_len or 0, length)

    def leave(self, job: Job, now: float) -> None:
        """A branch is done with its root."""
        hint = self._hint(job)
        if hint is not None and not job.is_plant:
            self._roots.leave(job.call.namespace, hint.root, now)

    def _hint(self, job: Job) -> ForkHint | None:
        return job.call.hint if self._is_on else None
