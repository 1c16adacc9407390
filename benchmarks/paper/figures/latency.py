"""Latency of one program at a time, and of first tokens (paper, figure 6)."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median

from ..engines import BASELINE, OURS, Engine, Engines
from ..figure import Chart, Figure, Settings, Step
from ..metered import Metered
from ..programs.catalog import WORKLOADS, workload
from ..programs.workload import Workload
from ..rows import Row, missing
from .throughput import NOTHING, dtypes

NAME = "latency"
LATENCY, FIRST, RATIO = "program latency", "first token", "times lower than the baseline's"
PAPER = "up to 3.7× lower"


def steps(settings: Settings) -> list[Step]:
    """A workload on all engines in turn."""
    names = list(WORKLOADS) if settings.mode != "smallest" else ["extraction"]
    return [Step(name, lambda engines, name=name: _measure(name, engines), 4.0) for name in names]


def _measure(name: str, engines: Engines) -> list[Row]:
    settings = engines.settings
    whole = workload(name, settings).first(settings.num(1, 1, 8))
    pair = {OURS: engines.ours(), NOTHING: engines.ours("nothing"), BASELINE: engines.baseline()}
    rows, kinds = [], [kind for peer in settings.peers for kind in dtypes(peer)]
    for kind in kinds:
        peer = engines.peer(kind)
        if isinstance(peer, str):
            rows.append(missing(NAME, LATENCY, whole.title, kind, peer))
        else:
            pair[kind] = peer
    able = {series: engine for series, engine in pair.items() if engine.can_run(whole.needs)}
    for series in pair.keys() - able.keys():
        reason = "it has no " + ", ".join(sorted(whole.needs - pair[series].features))
        rows.append(missing(NAME, LATENCY, whole.title, series, reason))
    found = {series: _one_by_one(whole, engine) for series, engine in able.items()}
    for series, (seconds, firsts) in found.items():
        rows += _rows(whole, series, seconds, firsts)
    if BASELINE in found:
        ratio = mean(found[BASELINE][0]) / mean(found[OURS][0])
        cells = whole.title, OURS, ratio, "×"
        rows.append(Row(NAME, RATIO, *cells, bar=1.0, paper=PAPER))
    return rows


def _one_by_one(whole: Workload, engine: Engine) -> tuple[list[float], list[float]]:
    """Seconds of each program after the first, which is run twice, and of their first tokens."""
    metered = Metered(engine.backend)
    timed = replace(engine, backend=metered)
    with engine.awake():
        seconds = [_alone(whole, timed, index) for index in (0, *range(len(whole.items)))][1:]
    metered.end()
    return seconds, metered.firsts


def _alone(whole: Workload, engine: Engine, index: int) -> float:
    one = replace(whole, items=whole.items[index : index + 1], truths=())
    return replace(one, score=None).run(replace(engine, pid=None), 1, is_cleared=False).seconds


def _rows(whole: Workload, series: str, seconds: list[float], firsts: list[float]) -> list[Row]:
    note = f"{len(seconds)} programs, one at a time"
    times = [it * 1e3 for it in seconds]
    spread = (min(times), max(times)) if len(times) > 1 else (None, None)
    paper = PAPER if series == OURS else ""
    cells = whole.title, series, mean(times), "ms", *spread
    rows = [Row(NAME, LATENCY, *cells, paper=paper, note=note)]
    if firsts:
        rows.append(Row(NAME, FIRST, whole.title, series, median(firsts) * 1e3, "ms", note=note))
    return rows


FIGURE = Figure(
    NAME,
    "Latency at batch 1",
    "Figure 6 (Llama-7B on an A10G): latency of one program at a time, up to 3.7× lower.",
    "Programs run one after another over one cache, as an interactive user would run them: what"
    " earlier programs share with a later one is cached. Means of programs, medians of first tokens"
    " over all calls.",
    steps,
    (
        Chart(LATENCY, unit="ms", better="lower", is_log=True),
        Chart(FIRST, unit="ms", better="lower", is_log=True),
        Chart(RATIO, unit="×", is_ratio=True),
    ),
)
