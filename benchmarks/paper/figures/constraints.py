"""The compressed state machine, and what preprocessing once is worth (paper, section 6.3)."""

from __future__ import annotations

from time import perf_counter

from forkroot.benchmarks.common import vocabularies
from forkroot.benchmarks.constraints import jumps
from forkroot.benchmarks.models.parity import Checkpoint
from forkroot.core.model.hub.folders import model_folder

from ..engines import Engines
from ..figure import Chart, Figure, Settings, Step
from ..rows import Row

NAME = "compressed fsm"
RATE, TIMES, PASSES = "calls per second", "times with jumps", "forward passes"
ON, OFF, EACH, NOTHING = (
    "jumps",
    "no jumps",
    "jumps, a guide for every call",
    "jumps, nothing shared",
)
PAPERS = {OFF: "1.6×", EACH: "2.4×", NOTHING: "2.4×"}
BARS = {OFF: 1.6}


def steps(settings: Settings) -> list[Step]:
    """One step: all ways in turn."""
    return [Step("character record", _measure, settings.pick(5, 12, 40))]


def _measure(engines: Engines) -> list[Row]:
    settings = engines.settings
    checkpoint = Checkpoint.load(model_folder("tiny"))
    count, rounds = settings.num(4, 4, 64), settings.num(1, 1, 5)
    words = vocabularies.embedded()
    found = jumps.measure(checkpoint, words, count, rounds, perf_counter)
    note = f"character record by a regular expression, up to {count} calls, {rounds} rounds"
    rows = []
    for batch in [name for name in found if name.startswith("batch")]:
        part = found[batch]
        for series, rate in part["calls_per_second"].items():
            rows.append(Row(NAME, RATE, batch, series, rate, "calls/s", note=note))
        for series, ratio in part["ratio"].items():
            cells = f"{batch}: jumps over “{series}”", "ratio", ratio, "×"
            paper, bar = PAPERS.get(series, ""), BARS.get(series)
            rows.append(Row(NAME, TIMES, *cells, bar=bar, paper=paper, note=note))
        for series in (ON, OFF):
            rows.append(Row(NAME, PASSES, batch, series, part["steps"][series], note=note))
    return rows


FIGURE = Figure(
    NAME,
    "Compressed finite state machine",
    "Section 6.3, JSON decoding: 1.6× by the compressed FSM; 2.4× lower throughput if the state"
    " machine is preprocessed again for each request.",
    "The character record on the embedded model with jump-forward on and off, and with a constraint"
    " that is compiled for each call instead of once: with what all constraints need of the"
    " tokenizer prepared once, or prepared again, too. Answers are equal in all ways.",
    steps,
    (
        Chart(TIMES, unit="×", is_ratio=True),
        Chart(RATE, unit="calls/s"),
        Chart(PASSES, better="lower"),
    ),
)
