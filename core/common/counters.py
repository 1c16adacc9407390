"""What a runtime counts: totals since its start, and how long things took.

Standard library only. All of it is plain numbers by name, so that it crosses processes and
adds up over several runtimes.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field, fields
from itertools import accumulate

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Histogram:
    """Seconds, counted by how many they are. Any thread may note."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Start anew."""
        with self._lock:
            self._counts = [0] * (len(BOUNDS) + 1)
            self._sum = 0.0

    def note(self, seconds: float) -> None:
        """Count one."""
        with self._lock:
            self._counts[bisect_left(BOUNDS, seconds)] += 1
            self._sum += seconds

    def as_dict(self, name: str) -> dict[str, int | float]:
        """The seconds in all as `name_sum`, and how many were at most so long as `name_le_0.5` and
        its like, up to `name_le_inf`, which counts all."""
        with self._lock:
            counts, total = [*accumulate(self._counts)], self._sum
        names = [f"{name}_le_{bound:g}" for bound in (*BOUNDS, float("inf"))]
        return {f"{name}_sum": total, **dict(zip(names, counts, strict=True))}


@dataclass(slots=True)
class Counters:
    """Totals of an engine since its start. Seconds are of wall time; the rest counts what its name
    says.

    prompt_tokens counts those of every sequence; cached_tokens of these were not computed,
    root_tokens of which are of roots that the calls' hints name.
    image_tokens of the prompt_tokens are features of pictures and clips; features_cached counts
    those whose keys and values were computed, from features that were on the device already.
    pictures_encoded and tower_tokens count what the tower computed.
    forced_tokens of the completion_tokens were appended without a pass of their own.
    sampled_tokens counts sampled tokens, step by step. evicted_tokens made room for others.
    queue_seconds: of each call, from its submission to the step in which it first ran.
    """

    calls: int = 0
    failed_calls: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    root_tokens: int = 0
    image_tokens: int = 0
    features_cached: int = 0
    pictures_encoded: int = 0
    tower_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    computed_tokens: int = 0
    sampled_tokens: int = 0
    retracted: int = 0
    evicted_tokens: int = 0
    run_seconds: float = 0.0
    step_seconds: float = 0.0
    queue_seconds: Histogram = field(default_factory=Histogram)

    def as_dict(self) -> dict[str, int | float]:
        """All of it by name; histograms as `Histogram.as_dict` has them."""
        found: dict[str, int | float] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            is_plain = not isinstance(value, Histogram)
            found |= {item.name: value} if is_plain else value.as_dict(item.name)
        return found
