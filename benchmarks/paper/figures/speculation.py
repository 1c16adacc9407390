"""Speculative execution for API models (paper, section 6.2, API models)."""

from __future__ import annotations

from forkroot.benchmarks.programs import speculation

from ..engines import Engines
from ..figure import Chart, Figure, Settings, Step
from ..rows import Row

NAME = "api speculation"
TOKENS, FEWER, EQUAL = "tokens and calls", "times fewer", "values equal"


def steps(settings: Settings) -> list[Step]:
    """All in one step."""
    return [Step("three fields", _measure, 8.0)]


def _measure(engines: Engines) -> list[Row]:
    num = engines.settings.num(4, 24, 80)
    items = speculation.passages(engines.settings.seed)[:num]
    with speculation.api_of_tiny() as (engine, backend):
        found = speculation.compared(engine, backend, speculation.record, items)
    note = f"synthetic; {num} passages, embedded model behind our own server as the API"
    rows = []
    kinds = {
        "calls": "calls",
        "prompt_tokens": "input tokens",
        "completion_tokens": "output tokens",
    }
    for key, title in kinds.items():
        for series, part in (("one call a field", "plain"), ("speculative", "speculative")):
            rows.append(Row(NAME, TOKENS, title, series, found[part][key], note=note))
    paper = {"input tokens": "about 3×"}
    for title, key in (
        ("calls", "fewer_calls"),
        ("input tokens", "fewer_prompt_tokens"),
        ("cost, output at 4× input", "lower_cost"),
    ):
        cells = title, "speculative", found[key], "×"
        bar = 3.0 if title == "input tokens" else None
        rows.append(Row(NAME, FEWER, *cells, bar=bar, paper=paper.get(title, ""), note=note))
    rows.append(Row(NAME, EQUAL, "all fields", "speculative", found["equal_values"], note=note))
    return rows


FIGURE = Figure(
    NAME,
    "API speculative execution",
    "Section 6.2: three fields of a Wikipedia page by GPT-3.5, about three times fewer"
    " input tokens.",
    "A program extracts three fields with one call each; speculatively the first call goes on past"
    " its stop, and later fields are read from what it wrote.",
    steps,
    (Chart(TOKENS, better="lower", is_log=True), Chart(FEWER, unit="×"), Chart(EQUAL)),
)
