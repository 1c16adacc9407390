"""What a report says, without its form: tables, losses, and what was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..figure import Chart, Figure
from ..rows import Row
from .numbers import category
from .svg import Entry


@dataclass(frozen=True, slots=True)
class Table:
    """One measure of a figure: a line for each category, a column for each series.

    cells: by category and series. papers: the paper's number, by category.
    """

    chart: Chart
    series: list[str]
    categories: list[str]
    cells: Mapping[tuple[str, str], Entry]
    papers: Mapping[str, str]

    @property
    def entries(self) -> list[Entry]:
        """All rows of the table."""
        return list(self.cells.values())


@dataclass(frozen=True, slots=True)
class Loss:
    """A row below its bar. kind: "slower" than a peer or the baseline, or a missed "bar"."""

    entry: Entry
    kind: str
    bar: float


def tables(figure: Figure, rows: Sequence[Row]) -> list[Table]:
    """The tables of a figure, one for each of its measures that has rows. A later row replaces an
    earlier one of the same cell."""
    found = []
    for chart in figure.charts:
        entries = [
            Entry(index, row)
            for index, row in enumerate(rows)
            if row.figure == figure.name and row.measure == chart.measure
        ]
        if not entries:
            continue
        found.append(
            Table(
                chart,
                list(dict.fromkeys(it.row.series for it in entries)),
                list(dict.fromkeys(category(it.row.x) for it in entries)),
                {(category(it.row.x), it.row.series): it for it in entries},
                {category(it.row.x): it.row.paper for it in entries if it.row.paper},
            )
        )
    return found


def losses(figures: Sequence[Figure], rows: Sequence[Row]) -> list[Loss]:
    """Every row that misses its bar, the worst first; those that are slower than
    somebody before those that only miss a bar above that."""
    found = []
    for figure in figures:
        for table in tables(figure, rows):
            for entry in table.entries:
                share, bar = share_of_bar(table.chart, entry.row), entry.row.bar
                if share is not None and bar is not None and share < 0.9995:
                    is_slower = table.chart.is_ratio and (entry.row.value or 0.0) < 1.0
                    found.append((share, Loss(entry, "slower" if is_slower else "bar", bar)))
    return [loss for _, loss in sorted(found, key=lambda it: (it[1].kind != "slower", it[0]))]


def share_of_bar(chart: Chart, row: Row) -> float | None:
    """How much of its bar a row reaches; None where it has none or was not measured."""
    if row.value is None or row.bar is None:
        return None
    if chart.better == "lower":
        return row.bar / row.value if row.value > 0 else 1.0
    return row.value / row.bar if row.bar else 1.0


def reasons(table: Table) -> dict[str, list[str]]:
    """Why cells have no value: categories by reason."""
    found: dict[str, list[str]] = {}
    for entry in table.entries:
        if entry.row.value is None:
            text = f"{entry.row.series}: {entry.row.note}"
            found.setdefault(text, []).append(category(entry.row.x))
    return found


def notes(table: Table) -> list[str]:
    """What rows say about their data, each once, with the categories."""
    found: dict[str, list[str]] = {}
    for entry in table.entries:
        if entry.row.value is not None and entry.row.note:
            found.setdefault(entry.row.note, []).append(category(entry.row.x))
    return [f"{', '.join(dict.fromkeys(titles))}: {note}" for note, titles in found.items()]
