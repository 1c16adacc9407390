"""The compiler: compiled beside interpreted programs, and code movement (paper, appendix D)."""

from __future__ import annotations

from statistics import median
from time import perf_counter, process_time
from typing import Any

from forkroot.adapters.native.movement.rules import Rules
from forkroot.benchmarks.common.vocabularies import embedded
from forkroot.benchmarks.programs import compiled
from forkroot.benchmarks.programs.movement import Eager, figures, line
from forkroot.benchmarks.programs.templates.template import load

from ..engines import Engines
from ..figure import Chart, Figure, Settings, Step
from ..rows import Row

NAME = "compiler"
RATE, TIMES, EQUAL = "programs per second", "compiled over interpreted", "outputs equal"
MOVED, TOKENS = "templates", "tokens that a shareable prefix gains"


def steps(settings: Settings) -> list[Step]:
    """Compiled programs; templates."""
    return [Step("judge", _judge, settings.pick(4, 12, 30)), Step("movement", _movement, 8.0)]


def _judge(engines: Engines) -> list[Row]:
    """Rounds in turn, each with texts of its own."""
    settings, backend = engines.settings, engines.ours().backend
    runners = {"interpreted": compiled.judge, "compiled": compiled.judge.compile()}
    walls: dict[str, list[float]] = {name: [] for name in runners}
    cpus: dict[str, list[float]] = {name: [] for name in runners}
    is_equal, num = True, settings.num(8, 32, 64)
    for turn in range(settings.num(1, 2, 6) + 1):  # the first one warms up
        items, found = compiled.items_of(settings.seed * 1000 + turn)[:num], dict[str, Any]()
        for name in list(runners) if turn % 2 else list(reversed(runners)):
            started, began = perf_counter(), process_time()
            states = runners[name].run_batch(
                items, backend=backend, raise_errors=True, progress_bar=False,
                namespace=f"{name} {turn}", temperature=0,
            )  # fmt: skip
            if turn:
                walls[name].append(perf_counter() - started)
                cpus[name].append(process_time() - began)
            found[name] = compiled.answers(states)
        is_equal &= found["interpreted"] == found["compiled"]
    note = f"{num} judges with six branches, synthetic texts"
    rows = [
        Row(NAME, RATE, "judge", name, num / median(taken), "programs/s", note=note)
        for name, taken in walls.items()
    ]
    for title, times in (("wall clock", walls), ("processor time", cpus)):
        ratios = [a / b for a, b in zip(times["interpreted"], times["compiled"], strict=True)]
        cells = title, "compiled", median(ratios), "×", min(ratios), max(ratios)
        rows.append(Row(NAME, TIMES, *cells, bar=1.0, note=note))
    return [*rows, Row(NAME, EQUAL, "judge", "compiled", float(is_equal), bar=1.0, note=note)]


def _movement(engines: Engines) -> list[Row]:
    """Twenty templates, twelve that the rules were not written after, and all by a mover that puts
    every constant first."""
    words, rows = {"tiny": embedded()}, list[Row]()
    sets = {"shipped": load("shipped"), "held out": load("held_out")}
    for title, templates in sets.items():
        for series, mover in (("rules (ours)", Rules()), ("all constants first", Eager())):
            part = figures([line(template, mover, words) for template in templates])
            own = series.startswith("rules")
            for name, key, paper in (
                ("can move, by hand", "movable_by_hand", "15 (held-out ones)"),
                ("moved", "moved", ""),
                ("moved without changing the meaning", "moved_legally", "12 of 15, by GPT-4"),
            ):
                shown = paper if own and title == "shipped" else ""
                x = f"{title} {part['templates']}: {name}"
                rows.append(Row(NAME, MOVED, x, series, float(part[key]), paper=shown))
            gained = part["mean_tokens_gained"]["tiny"]
            shown = "60" if own and title == "shipped" else ""
            rows.append(Row(NAME, TOKENS, title, series, gained, paper=shown))
    return rows


FIGURE = Figure(
    NAME,
    "Compiler",
    "Appendix D: GPT-4 reorders 12 of 15 prompt templates without changing their meaning; the"
    " shareable prefix grows by 60 tokens on average.",
    "Judges that fork six ways, interpreted and compiled, in turn. Code movement is judged by"
    " annotations made by hand: what may move in a template, and what must not.",
    steps,
    (
        Chart(TIMES, unit="×", is_ratio=True),
        Chart(RATE, unit="programs/s"),
        Chart(EQUAL),
        Chart(MOVED, better=""),
        Chart(TOKENS, unit="tokens"),
    ),
)
