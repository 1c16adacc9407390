"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..figure import Figure
from ..rows import Row
from .content import Loss, Table, losses, notes, reasons, tables
from .numbers import NOT_MEASURED, category, cell
from .svg import draw

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1140px; margin: 24px auto;
  padding: 0 20px; }
h1 { font-size: 26px } h2 { margin-top: 44px; border-top: 1px solid #ccc; padding-top: 14px }
h3 { font-size: 15px; margin: 22px 0 6px } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: 13px; margin: 8px 0 } .wide { overflow-x: auto }
td, th { border-bottom: 1px solid #e4e4e4; padding: 3px 10px; text-align: right }
td:first-child, th:first-child { text-align: left } .none { color: #999 } .note { color: #666;
  font-size: 13px } .slower { color: #a11; font-weight: 600 } .paper { color: #666 }
nav a { margin-right: 14px; white-space: nowrap }
"""


def html(
    figures: Sequence[Figure],
    rows: Sequence[Row],
    about: Mapping[str, str],
    faults: Mapping[str, str],
) -> str:
    """The whole page. about: lines on top, such as the machine. faults: steps that failed."""
    head = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{_TITLE}</title>"
    parts = [head, f"<style>{_STYLE}</style><h1>{_TITLE}</h1>"]
    parts.append("<table>" + "".join(_line(*item) for item in about.items()) + "</table>")
    parts += _losses(losses(figures, rows), figures)
    parts += _faults(faults)
    links = (f"<a href='#{_anchor(it)}'>{escape(it.title)}</a>" for it in figures)
    parts.append("<nav>" + " ".join(links) + "</nav>")
    for figure in figures:
        parts += _figure(figure, rows)
    return "\n".join([*parts, "</html>"])


_TITLE = "The paper’s evaluation"


def _line(name: str, text: str) -> str:
    return f"<tr><td>{escape(name)}</td><td style='text-align:left'>{escape(text)}</td></tr>"


def _anchor(figure: Figure) -> str:
    return figure.name.replace(" ", "-")


def _losses(found: Sequence[Loss], figures: Sequence[Figure]) -> list[str]:
    titles = {figure.name: figure.title for figure in figures}
    slower = [loss for loss in found if loss.kind == "slower"]
    parts = ["<h2 id='losses'>Where we lose</h2>"]
    if not found:
        return [*parts, "<p>No measured row is below its bar.</p>"]
    parts.append(
        f"<p>{len(slower)} rows are slower than what they are compared with, and"
        f" {len(found) - len(slower)} more miss their bar.</p>"
    )
    names_of_columns = "figure", "measure", "case", "series", "value", "bar"
    head = "<tr>" + "".join(f"<th>{it}</th>" for it in names_of_columns) + "</tr>"
    lines = []
    for loss in found:
        row = loss.entry.row
        names = (titles[row.figure], row.measure, category(row.x), row.series)
        shown = "".join(f"<td>{escape(it)}</td>" for it in names)
        value = f"<td class='{loss.kind}' data-row='{loss.entry.index}'>{escape(cell(row))}</td>"
        lines.append(f"<tr>{shown}{value}<td>{loss.bar:g}</td></tr>")
    return [*parts, f"<div class='wide'><table>{head}{''.join(lines)}</table></div>"]


def _faults(faults: Mapping[str, str]) -> list[str]:
    if not faults:
        return []
    lines = "".join(_line(*item) for item in faults.items())
    return ["<h2>Steps that failed</h2>", f"<table>{lines}</table>"]


def _figure(figure: Figure, rows: Sequence[Row]) -> list[str]:
    parts = [f"<h2 id='{_anchor(figure)}'>{escape(figure.title)}</h2>"]
    parts.append(f"<p class='paper'>Paper: {escape(figure.paper)}</p><p>{escape(figure.text)}</p>")
    found = tables(figure, rows)
    if not found:
        return [*parts, f"<p class='none'>{NOT_MEASURED}</p>"]
    for table in found:
        parts += _table(table)
    return parts


def _table(table: Table) -> list[str]:
    better = f" — {table.chart.better} is better" if table.chart.better else ""
    parts = [f"<h3>{escape(table.chart.measure)}{better}</h3>", draw(table.chart, table.entries)]
    has_paper = bool(table.papers)
    names = [table.chart.x_title, *table.series, *(["paper"] if has_paper else [])]
    lines = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"]
    for title in table.categories:
        cells = [_cell(table, title, series) for series in table.series]
        if has_paper:
            cells.append(f"<td class='paper'>{escape(table.papers.get(title, ''))}</td>")
        lines.append(f"<tr><td>{escape(title)}</td>{''.join(cells)}</tr>")
    parts.append(f"<div class='wide'><table>{''.join(lines)}</table></div>")
    for reason, titles in reasons(table).items():
        shown = f"{NOT_MEASURED}: {', '.join(titles)}: {reason}"
        parts.append(f"<p class='note'>{escape(shown)}</p>")
    said = notes(table)
    if said:
        items = "".join(f"<li>{escape(it)}</li>" for it in said)
        parts.append(
            f"<details class='note'><summary>data and conditions</summary>{items}</details>"
        )
    return parts


def _cell(table: Table, title: str, series: str) -> str:
    entry = table.cells.get((title, series))
    if entry is None:
        return "<td class='none'>–</td>"
    kind = " class='none'" if entry.row.value is None else ""
    return f"<td{kind} data-row='{entry.index}'>{escape(cell(entry.row))}</td>"
