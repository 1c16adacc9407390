"""Applies fork hints: pins roots in the cache when the sequences that computed them end, releases
them when their branches are done, and counts the cached tokens that belong to a root."""

from __future__ import annotations

from ..api.protocol import ForkHint
from ..radix.cache import RadixCache
from .forks import Roots
from .sequence import Job, Sequence


class RootPinning:
    """Applies the hints of jobs to the cache. is_on: whether they are followed at all."""

    def __init__(self, cache: RadixCache, roots: Roots, is_on: bool) -> None:
        self._cache = cache
        self._roots = roots
        self._is_on = is_on

    def pin(self, sequence: Sequence, now: float) -> None:
        """Pin what an ended sequence leaves in the cache, if branches wait for this root."""
        job = sequence.job
        hint = self._hint(job)
        length = sequence.prompt_len if job.is_prefill_only else job.root_len
        if hint is None or not length or sequence.index or sequence.is_aborted:
            return
        namespace = job.call.namespace
        if job.is_prefill_only or not self._roots.has(namespace, hint.root):
            lease = self._cache.acquire(namespace, sequence.ids[:length], length)
            self._roots.pin(namespace, hint.root, lease, hint.branches, now)

    def count_root_tokens(self, sequence: Sequence) -> int:
        """The cached tokens of a sequence that belong to the root of its hint; 0 where that was not
        computed before."""
        job = sequence.job
        hint = self._hint(job)
        if hint is None or job.is_prefill_only:
            return 0
        length = job.root_len or self._roots.length(job.call.namespace, hint.root)
        return min(sequence.cached_len or 0, length)

    def finish_branch(self, job: Job, now: float) -> None:
        """A branch is done with its root."""
        hint = self._hint(job)
        if hint is not None and not job.is_prefill_only:
            self._roots.finish_branch(job.call.namespace, hint.root, now)

    def _hint(self, job: Job) -> ForkHint | None:
        return job.call.hint if self._is_on else None
