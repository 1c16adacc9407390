"""The tables of the demo: what the judge found, and what it took."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from .demo import Essay, Judged, Verdict
from .essay_judge import DIMENSIONS, GRADES

RIGHT, WRONG = "green", "bold red"
HINTS_NOTE = (
    "(hints change little here: branches are asked for at once, and what waiting calls share is"
    " computed once either way; they pay where calls of one root come one after another, or where"
    " others would push the root out of a full pool: docs/performance.md)"
)


def grades_table(essays: Sequence[Essay], verdicts: Sequence[Verdict]) -> Table:
    """What the model found (✗: not what the rubric asks for); – for an essay that is about
    something else than its topic."""
    table = _table("Topic")
    for name in (*DIMENSIONS, "Grade", "By the rubric"):
        table.add_column(name)
    for essay, verdict in zip(essays, verdicts, strict=True):
        earned = essay.deserves()
        grade = None if earned is None else _grade(earned)
        found = verdict.marks or (None,) * len(DIMENSIONS)
        wanted = earned or (None,) * len(DIMENSIONS)
        marks = [_colored(_word(f), f == w) for f, w in zip(found, wanted, strict=True)]
        shown = _colored(verdict.grade or "–", verdict.grade == grade)
        table.add_row(essay.topic, *marks, shown, grade or "–")
    return table


def figures_table(batches: Sequence[Judged]) -> Table:
    """What each batch took; the last one's time is what the others are measured by."""
    table = _table("")
    for name in ("calls", "prompt\ntokens", "of these\ncached", "hit rate", "tokens\ncomputed"):
        table.add_column(name, justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("speed", justify="right", style="bold")
    slowest = batches[-1].figures.seconds
    for batch in batches:
        it = batch.figures
        counts = (it.calls, it.prompt_tokens, it.cached_tokens)
        table.add_row(
            batch.name,
            *(f"{number:,}" for number in counts),
            f"{it.cached_tokens / it.prompt_tokens:.1%}",
            f"{it.computed_tokens:,}",
            f"{it.seconds:.2f}",
            f"{slowest / it.seconds:.1f}×",
        )
    return table


def passes_table(pairs: Sequence[tuple[Judged, Judged]]) -> Table:
    """What the same work took with jumps and without: each is a pair in this order."""
    table = _table("")
    names = ("forward\npasses", "fewer", "tokens\nforced", "decoded\none by one", "seconds")
    for name in names:
        table.add_column(name, justify="right", style="bold" if name == "fewer" else "")
    for jumping, plain in pairs:
        for name, judged in ((jumping.name, jumping), ("  without jumps", plain)):
            it = judged.figures
            table.add_row(
                name,
                f"{it.passes:,}",
                f"{plain.figures.passes / it.passes:.1f}×",
                f"{it.forced_tokens:,}",
                f"{it.written_tokens - it.forced_tokens:,}",
                f"{it.seconds:.3f}",
            )
    return table


def _table(first: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    return table


def _grade(marks: Sequence[bool]) -> str:
    return GRADES[len(marks) - sum(marks)]


def _word(mark: bool | None) -> str:
    return "–" if mark is None else "good" if mark else "poor"


def _colored(text: str, is_right: bool) -> Text:
    return Text(text, RIGHT) if is_right else Text(f"{text} ✗", WRONG)
