"""Runs the steps of figures that have not ended yet, and shows which one runs."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .engines import Engines
from .figure import Figure, Settings, Step
from .machine import load
from .rows import RowFile


def run(
    figures: Sequence[Figure], settings: Settings, kept: RowFile, console: Console | None = None
) -> dict[str, str]:
    """Run every step that has no rows yet. What failed, with the error in one line: such steps have
    no rows, and are run again by the next run."""
    plan = [
        (f"{figure.name}/{step.name}", step)
        for figure in figures
        for step in figure.steps(settings)
    ]
    open_steps = [item for item in plan if item[0] not in kept.steps]
    faults: dict[str, str] = {}
    with _bar(console) as bar, Engines(settings) as engines:
        total = sum(step.seconds for _, step in plan)
        task = bar.add_task("", total=total)
        bar.advance(task, total - sum(step.seconds for _, step in open_steps))
        for name, step in open_steps:
            bar.update(task, description=name)
            fault = _run_step(name, step, engines, kept)
            if fault:
                faults[name] = fault
                bar.console.print(f"{name}: {fault}", style="red", markup=False)
            bar.advance(task, step.seconds)
        bar.update(task, description=f"{len(plan) - len(faults)} of {len(plan)} steps ended")
    return faults


def _run_step(name: str, step: Step, engines: Engines, kept: RowFile) -> str:
    """Run one step and keep its rows; an error in one line, else nothing."""
    started, before = perf_counter(), load()
    try:
        rows = step.run(engines)
    except Exception as error:
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:300]}"
    kept.add(name, rows, perf_counter() - started, before)
    return ""


def _bar(console: Console | None) -> Progress:
    parts = BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    return Progress(*parts, TimeRemainingColumn(), console=console or Console(stderr=True))
