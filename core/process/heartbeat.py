"""Heartbeats of tensor-parallel ranks: how far each rank is, and which of them hangs.

Knows nothing of processes: a monitor of each is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .liveness import LivenessMonitor

_MAX_MISSED = 3  # checks without a heartbeat, after which a rank counts as silent
_DEVICE_FACTOR = 10


class Heartbeat(NamedTuple):
    """Progress of a rank: batches started and done, collectives that have ended, and whether it
    waits for other ranks now (rank 0: or for the device)."""

    num_started: int = 0
    num_done: int = 0
    num_collectives: int = 0
    is_waiting: bool = False


class RankStatus:
    """What is known of one of the ranks after the first. `receive` may be called in any thread."""

    def __init__(self, rank: int, liveness: LivenessMonitor) -> None:
        self.rank = rank
        self.liveness = liveness
        self.heartbeat = Heartbeat()
        self.has_reported = False  # since the last check
        self._num_received = self._num_seen = self._num_missed = 0

    def receive(self, heartbeat: Heartbeat) -> None:
        """Take a heartbeat of this rank."""
        self.heartbeat = heartbeat
        self._num_received += 1

    def check(self) -> None:
        """Note whether a heartbeat came since the last check."""
        self.has_reported = self._num_received > self._num_seen
        self._num_seen = self._num_received
        self._num_missed = 0 if self.has_reported else self._num_missed + 1

    @property
    def is_reporting(self) -> bool:
        """Whether heartbeats still come."""
        return self._num_missed < _MAX_MISSED

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for other ranks, and heartbeats still come."""
        return self.heartbeat.is_waiting and self.is_reporting


class RankMonitor:
    """Finds ranks that hang. timeout: seconds without a sign of life after which a rank hangs.
    has_device: the ranks compute on devices, which cannot be observed: the timeout is ten times as
    long for a rank whose heartbeats still come."""

    def __init__(self, ranks: Sequence[RankStatus], timeout: float, has_device: bool) -> None:
        self._ranks = ranks
        self._timeout = timeout
        self._has_device = has_device
        self._first = Heartbeat()  # of rank 0, at the last check
        self._stuck = 0.0  # seconds for which rank 0 has waited although all others are done

    def check(self, seconds: float, first: Heartbeat) -> str | None:
        """After `seconds` since the last check: which rank hangs, in words, or None. first: the
        progress of rank 0.

        A rank that has done all batches has nothing to do. One that waits for others is excused
        while one of these does not wait: that one is slow, or hangs itself.
        """
        for rank in self._ranks:
            rank.check()
        busy = [rank for rank in self._ranks if rank.heartbeat.num_done < first.num_started]
        is_first_busy = first.num_done < first.num_started
        is_one_at_work = is_first_busy and not first.is_waiting
        is_one_at_work |= any(not rank.is_waiting for rank in busy)
        for rank in self._ranks:
            is_excused = rank not in busy or (rank.is_waiting and is_one_at_work)
            rank.liveness.update(seconds, rank.heartbeat, is_excused, rank.has_reported)
            if rank.liveness.silent_seconds >= self._limit(rank.is_reporting):
                cause = f"no sign of life for {rank.liveness.silent_seconds:.1f} s"
                return f"rank {rank.rank} of the model hangs: {cause}"
        is_stuck = is_first_busy and first.is_waiting and not busy and first == self._first
        self._stuck = self._stuck + seconds if is_stuck else 0.0
        self._first = first
        if self._stuck >= self._limit(is_reporting=True):
            return f"rank 0 of the model has waited {self._stuck:.1f} s for what no rank does"
        return None

    def _limit(self, is_reporting: bool) -> float:
        return self._timeout * (_DEVICE_FACTOR if self._has_device and is_reporting else 1)
