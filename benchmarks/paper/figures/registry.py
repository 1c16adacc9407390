"""All figures and tables, in the order of the report."""

from __future__ import annotations

from ..figure import Figure
from . import (
    ablations,
    code,
    compiler,
    constraints,
    growth,
    hit_rate,
    latency,
    multimodal,
    overhead,
    parallel,
    production,
    speculation,
    throughput,
)

FIGURES: tuple[Figure, ...] = (
    throughput.FIGURE,
    latency.FIGURE,
    parallel.TENSOR_FIGURE,
    hit_rate.FIGURE,
    ablations.FIGURE,
    constraints.FIGURE,
    overhead.FIGURE,
    multimodal.FIGURE,
    production.FIGURE,
    parallel.DATA_FIGURE,
    speculation.FIGURE,
    compiler.FIGURE,
    growth.FIGURE,
    code.FIGURE,
)
