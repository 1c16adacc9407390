"""The report as Markdown, for `docs/paper.md`: the same tables from the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..figure import Figure
from ..rows import Row
from .content import Table, losses, notes, reasons, tables
from .numbers import NOT_MEASURED, category, cell

_HEAD = """# The paper's evaluation

Every figure and table of the paper, measured here by one command and written from its rows:

```sh
python -m forkroot.benchmarks.paper --quick --out FOLDER
```

It writes `rows.jsonl`, a picture for each chart and `report.html`. `--peers vllm,transformers` adds
other engines, `--data DIR` the real data sets, `--gpu` the figures that need one. A run that was
killed continues where it was.
"""


def markdown(
    figures: Sequence[Figure],
    rows: Sequence[Row],
    about: Mapping[str, str],
    faults: Mapping[str, str],
) -> str:
    """The whole page."""
    parts = [_HEAD, *(f"- {name}: {text}" for name, text in about.items()), ""]
    parts += _losses(figures, rows)
    parts += [f"- step that failed: {name}: {text}" for name, text in faults.items()]
    for figure in figures:
        parts += ["", f"## {figure.title}", "", f"*Paper:* {figure.paper}", "", figure.text]
        found = tables(figure, rows)
        parts += [] if found else ["", NOT_MEASURED]
        for table in found:
            parts += _table(table)
    return "\n".join(parts) + "\n"


def _losses(figures: Sequence[Figure], rows: Sequence[Row]) -> list[str]:
    found = losses(figures, rows)
    lines = ["## Where we lose", ""]
    if not found:
        return [*lines, "No measured row is below its bar."]
    lines += ["| figure | measure | case | series | value | bar |", "|---|---|---|---|---:|---:|"]
    for loss in found:
        row = loss.entry.row
        names = row.figure, row.measure, category(row.x), row.series
        value = f"**{cell(row)}**" if loss.kind == "slower" else cell(row)
        lines.append(f"| {' | '.join(names)} | {value} | {loss.bar:g} |")
    return lines


def _table(table: Table) -> list[str]:
    better = f", {table.chart.better} is better" if table.chart.better else ""
    names = [table.chart.measure + better, *table.series, *(["paper"] if table.papers else [])]
    lines = ["", f"| {' | '.join(names)} |", "|---|" + "---:|" * (len(names) - 1)]
    for title in table.categories:
        cells = [
            cell(entry.row) if (entry := table.cells.get((title, series))) else "–"
            for series in table.series
        ]
        cells += [table.papers.get(title, "")] if table.papers else []
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        f"\n{NOT_MEASURED}: {', '.join(titles)}: {text}" for text, titles in reasons(table).items()
    ]
    said = notes(table)
    return [*lines, "", *(f"- {it}" for it in said)] if said else lines
