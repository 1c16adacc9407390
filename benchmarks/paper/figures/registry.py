"""All figures and tables, in the order of the report."""

from __future__ import annotations

from ..figure import Figure
from . import hit_rate, speculation, throughput

FIGURES: tuple[Figure, ...] = (
    throughput.FIGURE,
    hit_rate.FIGURE,
    speculation.FIGURE,
)
