"""What the server counts, for Prometheus, in a registry of its own.

Totals of tokens are the backend's own counters, read at each request for metrics.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ....core.api.protocol import Backend, ForkrootError

M = TypeVar("M", Counter, Gauge, Histogram)
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

_BUCKET = re.compile(r"_(le_[\d.]+|le_inf|sum)$")
_TEXTS = {
    "queue_seconds": "From a call's submission to the step in which it first ran",
    "compile_seconds": "Of each constraint that was compiled",
}


class Metrics:
    """Counters, gauges and histograms of one server."""

    def __init__(self, backend: Backend) -> None:
        registry = self._registry = CollectorRegistry()
        registry.register(BackendCounters(backend))

        def own(kind: type[M], name: str, text: str, *labels: str, **options: Any) -> M:
            return kind(f"forkroot_{name}", text, labels, registry=registry, **options)

        self.requests_open = own(Gauge, "requests_open", "Requests at work")
        self.calls_open = own(Gauge, "calls_open", "Calls running or queued in the backend")
        self.draining = own(Gauge, "draining", "1 while no new requests are taken, else 0")
        self.requests = own(Counter, "requests", "Requests answered", "route", "status")
        self.refused = own(Counter, "refused", "Requests refused or failed", "reason")
        self.aborted = own(Counter, "aborted_calls", "Calls ended early by their client")
        text = "From submission to the first text of a streamed call"
        self.first_token = Latencies("forkroot_time_to_first_token_seconds", text)
        text = "From one piece of text of a streamed call to the next"
        self.next_token = Latencies("forkroot_inter_token_latency_seconds", text)
        registry.register(self.first_token)
        registry.register(self.next_token)
        text, name = "Of a whole request", "request_duration_seconds"
        self.duration = own(Histogram, name, text, "route", buckets=_LATENCIES)

    def page(self) -> bytes:
        """All of it in Prometheus' text format. Asks the backend, and may wait for it."""
        return generate_latest(self._registry)


class Latencies(Collector):
    """A histogram of every token's latency. It takes no lock: only one thread may observe."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * (len(_LATENCIES) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one more."""
        self._counts[bisect_left(_LATENCIES, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[Metric]:
        """As Prometheus has it: each bucket counts all that are below its bound."""
        bounds = [*map(floatToGoString, _LATENCIES), "+Inf"]
        totals = list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._text, totals, self._sum)


class BackendCounters(Collector):
    """The backend's counters and load, read at the moment of asking; nothing from one that is
    closed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def describe(self) -> Iterator[Metric]:
        """Nothing: what there is depends on the backend."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One counter for each of the backend's, one gauge for each figure of its load, and the hit
        rate."""
        try:
            info = self._backend.info()
        except ForkrootError:
            return
        counters = info.counters
        buckets, text = _buckets(counters), "As the engine counts it"
        for name, parts in buckets.items():
            total = counters[f"{name}_sum"]
            yield HistogramMetricFamily(f"forkroot_{name}", _TEXTS.get(name, text), parts, total)
        for name, value in counters.items():
            if _BUCKET.sub("", name) not in buckets:
                yield CounterMetricFamily(f"forkroot_{name}", text, value=value)
        for name, value in info.load.items():
            yield GaugeMetricFamily(f"forkroot_{name}", "As it is now in the engine", value=value)
        found, requested = counters.get("cached_tokens", 0), counters.get("prompt_tokens", 0)
        text = "Share of the prompt tokens that were cached"
        yield GaugeMetricFamily("forkroot_cache_hit_rate", text, value=found / max(1, requested))


def _buckets(counters: Mapping[str, int | float]) -> dict[str, list[tuple[str, float]]]:
    """The buckets of each histogram, given as `NAME_le_0.5` and so on beside `NAME_sum`."""
    found: dict[str, list[tuple[str, float]]] = {}
    for name, value in counters.items():
        stem, _, bound = name.rpartition("_le_")
        if stem and f"{stem}_sum" in counters:
            found.setdefault(stem, []).append(("+Inf" if bound == "inf" else bound, value))
    return found
