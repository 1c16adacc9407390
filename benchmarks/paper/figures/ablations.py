"""Ablations of RadixAttention (paper, figure 8): hit rates, and its components."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from statistics import mean, median
from typing import Any

from ..caches import clipped, whole_prompts
from ..engines import Engine, Engines
from ..figure import Chart, Figure, Settings, Step
from ..metered import Metered
from ..programs.catalog import workload
from ..rows import Row

NAME = "ablations"
HIT, FIRST, TOTAL, RATE, BATCH = (
    "hit rate reached",
    "first token by hit rate",
    "latency by hit rate",
    "throughput by hit rate",
    "batch size by hit rate",
)
PARTS, PARTS_CPU = "throughput by component", "throughput by component, by processor time"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
FEWER = {"smallest": (0.0, 1.0), "quick": (0.0, 0.5, 1.0)}
FULL = "full"
REPRESENTATIVE = ("llm judge", "react", "tree of thought", "mmlu", "chat short")
PAPER = "every component is needed for the best"


def steps(settings: Settings) -> list[Step]:
    """The tree of thought at several hit rates; and each representative workload without parts."""
    names = REPRESENTATIVE[: settings.num(1, 2, 5)]
    parts = [Step(name, lambda engines, name=name: _parts(name, engines), 8.0) for name in names]
    return [Step("hit rates", _hit_rates, settings.pick(2, 10, 40)), *parts]


def _hit_rates(engines: Engines) -> list[Row]:
    """The cached share of each setting is the number on the axis; pools are small enough that
    memory bounds the batch."""
    settings = engines.settings
    whole = workload("tree of thought", settings)
    engine = engines.ours(num_slots=settings.num(4096, 8192, 8192))
    whole.first(1).run(engine)
    rows, title = list[Row](), whole.title
    for share in FEWER.get(settings.mode, SHARES):
        metered = Metered(engine.backend)
        with clipped(share):
            engine.backend.clear_cache()
            engine.backend.reset_counters()
            outcome = whole.run(replace(engine, backend=metered), 16)
        metered.end()
        counters = engine.backend.info().counters
        note = f"{title}, {len(whole.items)} programs, matches clipped to {share:.0%}"
        reached = round(100 * outcome.cached_share, 1)
        batch = counters["completion_tokens"] / max(1, counters["steps"])
        for measure, value, unit in (
            (FIRST, median(metered.firsts) * 1e3, "ms"),
            (TOTAL, mean(metered.totals) * 1e3, "ms"),
            (RATE, outcome.rate, "programs/s"),
            (BATCH, batch, "sequences"),
        ):
            rows.append(Row(NAME, measure, reached, title, value, unit, note=note))
        rows.append(Row(NAME, HIT, f"{share:.0%} of each match", title, reached / 100, note=note))
    return rows


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _settings_of(engines: Engines, **settings: Any) -> dict[str, tuple[Engine, Callable[[], Any]]]:
    """Each component's engine, and what makes it worse while it runs."""
    full = engines.ours(**settings)
    return {
        FULL: (full, nullcontext),
        "no cache": (engines.ours("no cache", **settings), nullcontext),
        "no tree (whole prompts)": (full, whole_prompts),
        "fcfs": (engines.ours("fcfs", **settings), nullcontext),
        "random order": (engines.ours("random", **settings), nullcontext),
        "no frontend parallelism": (replace(full, is_serial=True), nullcontext),
        "no frontend hint": (replace(full, hints=False), nullcontext),
    }


def _parts(name: str, engines: Engines) -> list[Row]:
    settings = engines.settings
    whole = workload(name, settings)
    ways = _settings_of(engines, num_slots=8192)
    walls: dict[str, list[float]] = {series: [] for series in ways}
    cpus: dict[str, list[float]] = {series: [] for series in ways}
    shares = dict[str, float]()
    for turn in range(settings.num(1, 1, 4)):
        order = list(ways) if turn % 2 else list(reversed(ways))
        for series in order:
            engine, worse = ways[series]
            engine.backend.clear_cache()
            with worse():
                outcome = whole.run(engine)
            walls[series].append(outcome.seconds)
            cpus[series].append(outcome.cpu)
            shares[series] = outcome.cached_share
    rows = []
    for measure, times in ((PARTS, walls), (PARTS_CPU, cpus)):
        for series, taken in times.items():
            ratios = [full / own for full, own in zip(times[FULL], taken, strict=True)]
            note = f"{series}: cached share {shares[series]:.3f}; {whole.source}"
            cells = whole.title, series, median(ratios), "×", min(ratios), max(ratios)
            paper = PAPER if series == FULL else ""
            rows.append(Row(NAME, measure, *cells, paper=paper, note=note))
    return rows


FIGURE = Figure(
    NAME,
    "Ablation of RadixAttention",
    "Figure 8: (a, b) hit rate against first-token latency, latency, batch size and throughput on"
    " the tree of thought; (c) throughput without each component.",
    "(a, b) Only a part of each matched prefix is reused, by a switch in the cache. The axis is the"
    " hit rate that was reached, in percent. (c) Throughput over that with everything on, in the"
    " same round, in a pool of 8,192 tokens. “no tree” reuses a prefix only if it is a"
    " whole earlier"
    " sequence; its storage is shared as in the tree, which favours it.",
    steps,
    (
        Chart(PARTS, unit="×"),
        Chart(PARTS_CPU, unit="×"),
        Chart(HIT),
        Chart(FIRST, "lines", "ms", "lower", "hit rate, %"),
        Chart(TOTAL, "lines", "ms", "lower", "hit rate, %"),
        Chart(RATE, "lines", "programs/s", "higher", "hit rate, %"),
        Chart(BATCH, "lines", "sequences", "", "hit rate, %"),
    ),
)
