"""The queue of the paper's data-parallel RadixAttention: evictions, for a router to read.

Bounded: a reader that comes too late learns that it missed some, and reads what is cached instead.
Nothing is recorded before somebody asks. Any thread may read it.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from itertools import islice

from ..api.evictions import Eviction, EvictionReport
from ..common.digests import CHUNK, DIGEST, digests

CAPACITY = 4096
REPORTED = 1024  # evictions of one report


class EvictionLog:
    """The newest evictions of one cache. capacity: how many are remaining."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.life = uuid.uuid4().hex
        self.is_read = False
        self._lock = threading.Lock()
        self._entries: deque[Eviction] = deque(maxlen=capacity)
        self.end = 0

    def add(self, namespace: str, key: bytes, remaining: int, num_tokens: int) -> None:
        """Of this key only the first `remaining` bytes are still cached."""
        found, remaining = digests(key), remaining // CHUNK * DIGEST
        if len(found) <= remaining:
            return  # less than a chunk: it is known as it was
        with self._lock:
            self._entries.append(Eviction(namespace, found, remaining, num_tokens))
            self.end += 1

    def since(self, end: int) -> EvictionReport:
        """What was forgotten after this number, as much of it as fits into a report."""
        with self._lock:
            first = self.end - len(self._entries)
            if not self.is_read or not first <= end <= self.end:
                self.is_read = True
                return EvictionReport(self.life, self.end, is_gap=True)
            found = tuple(islice(self._entries, end - first, end - first + REPORTED))
            return EvictionReport(self.life, end + len(found), found)
