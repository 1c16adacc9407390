"""Reads what replicas have evicted, and corrects the meta-tree: in quiet moments, a little at a
time, under the router's lock.

A reader that comes too late, or to another life of a replica, reads what is cached there instead;
so does a router that has just started. A report that is old or lost costs time only. Where prompts
are compared as texts, the digests of a report, which are of tokens, are of no use: as much is
forgotten as the report counts, the least recently used first, as the replica does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ...core.api.evictions import Eviction, EvictionReport, PrefixReport
from .fleet import Fleet
from .replica import Replica

SLICE = 64  # evictions that are applied at a time
QUIET = 0.02  # seconds without a call after which the router counts as idle
LONGEST_WAIT = 5.0  # seconds after which evictions are read also where it never is
DIGEST_BYTES = 0.5  # of a token: four bytes of a key, of which 64 give a digest of eight
_MOST_LOOKED_AT = 4096  # nodes, for each slice


class EvictionReader:
    """Reads the evictions of a router's replicas.

    has_tokens: whether the meta-tree's keys are of tokens.
    num_evictions, num_resyncs: that were applied, and how often all was read anew.
    """

    def __init__(self, fleet: Fleet, lock: threading.RLock, has_tokens: Callable[[], bool]) -> None:
        self.fleet, self._lock = fleet, lock
        self._has_tokens = has_tokens
        self.num_evictions = self.num_resyncs = 0

    def read(self, replica: Replica, now: float | None = None) -> None:
        """Take in what a replica reports, if it does and the router is idle. Raises what its
        backend raises."""
        backend: Any = replica.backend
        if not hasattr(backend, "evictions") or not self._is_time(replica, now):
            return
        report: EvictionReport = backend.evictions(replica.report_end)
        is_other = replica.life not in ("", report.life)
        if report.is_gap or is_other or not replica.life:
            if not self._has_tokens():
                self._note(replica, report, is_other)
                return
            self._resync(replica, backend.prefixes())
            return
        for start in range(0, len(report.evictions), SLICE):
            with self._lock:
                self._apply(replica, report.evictions[start : start + SLICE])
        replica.report_end = report.end

    def _is_time(self, replica: Replica, now: float | None) -> bool:
        now = time.monotonic() if now is None else now
        is_idle = now - self.fleet.last_placed >= QUIET
        if not is_idle and replica.life and now - replica.read_at < LONGEST_WAIT:
            return False
        replica.read_at = now
        return True

    def _apply(self, replica: Replica, evictions: tuple[Eviction, ...]) -> None:
        tree = self.fleet.tree
        self.num_evictions += len(evictions)
        if self._has_tokens():
            for it in evictions:
                tree.drop(it.namespace, it.digests, it.remaining, replica.bit)
        else:
            gone = sum(it.tokens for it in evictions)
            tree.forget_oldest(replica.bit, int(gone * DIGEST_BYTES), _MOST_LOOKED_AT)

    def _resync(self, replica: Replica, report: PrefixReport) -> None:
        """What a replica holds is what it reports now."""
        with self._lock:
            if replica.life:
                self.fleet.renew(replica)
                self.num_resyncs += 1
            replica.life, replica.report_end = report.life, report.end
        oldest_first = report.prefixes[::-1]
        for start in range(0, len(oldest_first), SLICE):
            with self._lock:
                for it in oldest_first[start : start + SLICE]:
                    self.fleet.tree.add(it.namespace, it.digests, replica.bit)

    def _note(self, replica: Replica, report: EvictionReport, is_other: bool) -> None:
        with self._lock:
            if is_other:
                self.fleet.renew(replica)
            replica.life, replica.report_end = report.life, report.end
