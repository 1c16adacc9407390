"""A policy that knows all calls before: to tell what a router loses by not knowing the future.

Calls that begin with the same digest are a group. Groups are given to replicas by their work, the
largest first, each to the one with the least; a group with more than a replica's share is given to
several.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import Any

from forkroot.adapters.router.policies import Placement, Replicas, Request
from forkroot.core.common.digests import DIGEST

TOKENS = 2  # for each byte of a key: digests are 8 bytes for 16 tokens


class Recorder:
    """A policy beside which the work of each group is counted. new: tokens that one cache without
    limits has to compute. calls: of each group."""

    uses_tree = False

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._seen = set[bytes]()
        self.new, self.calls = Counter[bytes](), Counter[bytes]()

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        key, known = request.key, 0
        while known < len(key) and key[: known + DIGEST] in self._seen:
            known += DIGEST
        self._seen.update(key[:end] for end in range(known + DIGEST, len(key) + 1, DIGEST))
        self.new[key[:DIGEST]] += TOKENS * (len(key) - known)
        self.calls[key[:DIGEST]] += 1
        placement: Placement = self._inner.choose(request, among)
        return placement

    def forget(self, holders: int) -> None:
        """As `Policy.forget`."""
        self._inner.forget(holders)

    def work(self, per_token: float, per_call: float) -> dict[bytes, float]:
        """Seconds of each group."""
        return {it: self.new[it] * per_token + num * per_call for it, num in self.calls.items()}


class PlannedPolicy:
    """The least loaded of the replicas that a call's group was given to. work: of each group."""

    uses_tree = False

    def __init__(self, replicas: Replicas, work: dict[bytes, float], num: int) -> None:
        self._replicas = replicas
        self._given: dict[bytes, int] = {}
        share, loads = sum(work.values()) / num, [(0.0, index) for index in range(num)]
        for group, seconds in sorted(work.items(), key=lambda it: -it[1]):
            parts = min(num, max(1, math.ceil(seconds / share)))
            taken = [heapq.heappop(loads) for _ in range(parts)]
            self._given[group] = sum(1 << index for _, index in taken)
            for load, index in taken:
                heapq.heappush(loads, (load + seconds / parts, index))

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        given = self._given.get(request.key[:DIGEST], among) & among or among
        least, _ = self._replicas.loads.least(given)
        return Placement(least & -least)

    def forget(self, holders: int) -> None:
        """It plans for replicas that stay."""
