"""Charts as SVG: bars by category, and lines over a logarithmic axis. Standard library only.

A label that shows a value names its row in `data-row`, its index among all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log10
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from ..figure import Chart
from ..rows import Row
from .numbers import category, shown

COLOURS = ("#2f6db3", "#9aa7b5", "#c98a2b", "#5a8f5a", "#a3527f", "#6d5bb0", "#3f9a9a", "#8a6d4b")
LEFT, WIDTH, BAR, GAP, TOP = 250, 720, 14, 12, 40
HEIGHT = 320


class Entry(NamedTuple):
    """A row and its index among all rows."""

    index: int
    row: Row


class Axis(NamedTuple):
    """From values to pixels; logarithmic or not."""

    low: float
    high: float
    start: float
    length: float
    is_log: bool

    def at(self, value: float) -> float:
        """Where a value is; at an end where it is beyond."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = (log10(max(it, 1e-12)) for it in (value, low, high))
        part = (value - low) / (high - low) if high > low else 0.0
        return self.start + self.length * min(1.0, max(0.0, part))

    def ticks(self) -> list[float]:
        """Round values, about five."""
        if self.is_log:
            powers = range(round(log10(self.low)), round(log10(self.high)) + 1)
            step = max(1, len(powers) // 6)
            return [10.0**power for power in powers[::step]]
        size = 10 ** floor(log10(max(self.high - self.low, 1e-9) / 4))
        width = next(size * it for it in (1, 2, 5, 10) if (self.high - self.low) / (size * it) <= 5)
        count = floor(self.high / width + 1e-9)
        return [width * number for number in range(count + 1)]


def draw(chart: Chart, entries: Sequence[Entry]) -> str:
    """A chart of one measure; "" where nothing was measured."""
    known = [entry for entry in entries if entry.row.value is not None]
    if not known:
        return ""
    return _lines(chart, known) if chart.kind == "lines" else _bars(chart, known)


def axis_of(values: Iterable[float], start: float, length: float, is_log: bool) -> Axis:
    """An axis on which all values are."""
    found = list(values)
    positive = [it for it in found if it > 0]
    if is_log and positive:
        low, high = floor(log10(min(positive)) + 1e-9), ceil(log10(max(positive)) - 1e-9)
        return Axis(10.0**low, 10.0 ** max(high, low + 1), start, length, True)
    return Axis(0.0, max(*found, 0.0, 1e-9) * 1.05, start, length, False)


def colours_of(entries: Sequence[Entry]) -> Mapping[str, str]:
    """A colour for each series, by its first appearance."""
    names = list(dict.fromkeys(entry.row.series for entry in entries))
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}


def _bars(chart: Chart, entries: Sequence[Entry]) -> str:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(category(entry.row.x), []).append(entry)
    colours = colours_of(entries)
    targets = _bars_of(entries)
    values = [entry.row.value or 0.0 for entry in entries]
    axis = axis_of([*values, *targets], LEFT, WIDTH, chart.is_log)
    height = TOP + sum(len(it) * BAR + GAP for it in groups.values()) + 26
    parts = [*_legend(colours), *_scale(axis, height), *_target(targets, axis, height)]
    y = TOP + 4.0
    for title, some in groups.items():
        middle = y + len(some) * BAR / 2 + 4
        parts.append(_text(LEFT - 8, middle, title, "end"))
        for entry in some:
            parts += _bar(entry, axis, y, colours[entry.row.series])
            y += BAR
        y += GAP
    return _picture(LEFT + WIDTH + 90, height, parts)


def _bar(entry: Entry, axis: Axis, y: float, colour: str) -> list[str]:
    value = entry.row.value or 0.0
    end = axis.at(value)
    size = f'x="{LEFT}" y="{y:.1f}" width="{max(1.0, end - LEFT):.1f}" height="{BAR - 2}"'
    title = f"<title>{escape(entry.row.series)}</title>"
    parts = [f'<rect {size} fill="{colour}">{title}</rect>']
    if entry.row.low is not None and entry.row.high is not None:
        ends = f'x1="{axis.at(entry.row.low):.1f}" x2="{axis.at(entry.row.high):.1f}"'
        parts.append(f'<line {ends} y1="{y + 6:.1f}" y2="{y + 6:.1f}" stroke="#222"/>')
        end = max(end, axis.at(entry.row.high))
    return [*parts, _text(end + 4, y + BAR - 4, shown(value), "start", entry.index)]


def _lines(chart: Chart, entries: Sequence[Entry]) -> str:
    colours = colours_of(entries)
    across = axis_of([float(entry.row.x) for entry in entries], 90, WIDTH + 80, _is_wide(entries))
    targets = _bars_of(entries)
    values = [entry.row.value or 0.0 for entry in entries]
    up = axis_of([*values, *targets], 0, HEIGHT, chart.is_log)
    bottom = TOP + HEIGHT
    parts = [*_legend(colours), *_grid(up, across, bottom)]
    for target in targets:
        y = bottom - up.at(target)
        ends = f'x1="90" x2="{WIDTH + 170}" y1="{y:.1f}" y2="{y:.1f}"'
        parts.append(f'<line {ends} stroke="#b33" stroke-dasharray="5 4"/>')
    for series, colour in colours.items():
        some = sorted(
            (it for it in entries if it.row.series == series), key=lambda it: float(it.row.x)
        )
        spots = [(across.at(float(it.row.x)), bottom - up.at(it.row.value or 0.0)) for it in some]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for entry, (x, y) in zip(some, spots, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
            parts.append(_text(x, y - 8, shown(entry.row.value or 0.0), "middle", entry.index))
    parts.append(_text(90 + (WIDTH + 80) / 2, bottom + 40, chart.x_title, "middle"))
    return _picture(LEFT + WIDTH + 90, bottom + 52, parts)


def _is_wide(entries: Sequence[Entry]) -> bool:
    """Whether the numbers of the axis span more than a factor of 20."""
    found = [float(entry.row.x) for entry in entries]
    return min(found) > 0 and max(found) / min(found) > 20


def _grid(up: Axis, across: Axis, bottom: float) -> list[str]:
    parts = []
    for tick in up.ticks():
        y = bottom - up.at(tick)
        parts.append(
            f'<line x1="90" x2="{WIDTH + 170}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        )
        parts.append(_text(84, y + 4, shown(tick), "end"))
    for tick in across.ticks():
        parts.append(_text(across.at(tick), bottom + 18, category(tick), "middle"))
    return parts


def _legend(colours: Mapping[str, str]) -> list[str]:
    parts, x = [], 10.0
    for name, colour in colours.items():
        parts.append(f'<rect x="{x:.0f}" y="7" width="11" height="11" fill="{colour}"/>')
        parts.append(_text(x + 16, 17, name, "start"))
        x += 34 + 7.2 * len(name)
    return parts


def _scale(axis: Axis, height: float) -> list[str]:
    parts = []
    for tick in axis.ticks():
        x = axis.at(tick)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 22}" stroke="#e4e4e4"/>'
        )
        parts.append(_text(x, height - 8, shown(tick), "middle"))
    return parts


def _bars_of(entries: Sequence[Entry]) -> list[float]:
    """The values that rows should reach, each once."""
    return sorted({entry.row.bar for entry in entries if entry.row.bar is not None})


def _target(bars: Sequence[float], axis: Axis, height: float) -> list[str]:
    parts = []
    for bar in bars:
        x = axis.at(bar)
        ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 22}"'
        parts.append(f'<line {ends} stroke="#b33" stroke-dasharray="5 4"/>')
    return parts


def _text(x: float, y: float, text: str, anchor: str, index: int | None = None) -> str:
    row = "" if index is None else f' data-row="{index}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{row}>{escape(text)}</text>'


def _picture(width: float, height: float, parts: Sequence[str]) -> str:
    size = f"0 0 {width:.0f} {height:.0f}"
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    space = 'xmlns="http://www.w3.org/2000/svg"'
    body = "\n".join(parts)
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    width_attr = f'width="{width:.0f}" height="{height:.0f}"'
    return f"<svg {space} viewBox={quoteattr(size)} {width_attr} {style}>\n{back}\n{body}\n</svg>"
