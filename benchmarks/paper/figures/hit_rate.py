"""Cache hit rates beside the optimum (paper, figure 12 of the appendix)."""

from __future__ import annotations

from forkroot.benchmarks.cache.hit_rate import Setting, measure
from forkroot.benchmarks.common import workloads
from forkroot.core.api.config import EngineConfig

from ..engines import OURS, Engines
from ..figure import Chart, Figure, Settings, Step
from ..rows import Row

NAME = "hit rate"
RATE, SHARE = "hit rate", "hit rate over optimum"
OPTIMUM = "optimum"
UNLIMITED, TENTH = Setting(), Setting(0.1)
PAPER = "0.96 on average; 0.50 to 0.99 achieved"
SHAPES = {
    shape.__name__: shape
    for shape in workloads.SHAPES
    if shape not in (workloads.shared_prefixes, workloads.in_batch, workloads.deep_tree)
}


def steps(settings: Settings) -> list[Step]:
    """A workload's shape in virtual time."""
    names = ["gsm8k"] if settings.mode == "smallest" else list(SHAPES)
    return [Step(name, lambda engines, name=name: _measure(name, engines), 1.5) for name in names]


def _measure(name: str, engines: Engines) -> list[Row]:
    settings = engines.settings
    size = settings.pick(0.02, 0.04 if name == "mmlu" else 0.1, 0.2 if name == "mmlu" else 1.0)
    config = EngineConfig(seed=settings.seed)
    found = measure(SHAPES[name], size, config, (UNLIMITED, TENTH))
    note = f"{found['programs']} programs, {found['width']} at a time, synthetic tokens"
    title, optimum = found["workload"], found["optimum"]
    rows = [Row(NAME, RATE, title, OPTIMUM, optimum, note=note)]
    for series, setting in ((OURS, UNLIMITED), ("pool of a tenth", TENTH)):
        part = found[setting.name]
        rate = 1 - part["prefilled"] / part["prompt_tokens"]
        paper = PAPER if setting is UNLIMITED else ""
        rows.append(Row(NAME, RATE, title, series, rate, note=note))
        bar = 0.99 if setting is UNLIMITED else None
        share = part["of_optimum"]
        rows.append(Row(NAME, SHARE, title, series, share, bar=bar, paper=paper, note=note))
    return rows


FIGURE = Figure(
    NAME,
    "Cache hit rate, achieved and optimal",
    "Figure 12: achieved and optimal hit rate of each workload; 96 % of the optimum on average.",
    "The share of prompt tokens that are not computed, over the paper’s shapes in virtual"
    " time: real"
    " scheduler and cache, no model. The optimum is that of Theorem 3.1: the same calls,"
    " depth first,"
    " in an unlimited cache. A pool of a tenth holds a tenth of all distinct tokens.",
    steps,
    (Chart(RATE), Chart(SHARE)),
)
