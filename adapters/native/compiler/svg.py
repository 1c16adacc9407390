"""A picture as SVG: one column a stream, solid arrows within it and dashed ones between streams."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .picture import Arrow, Cell, Heading, Picture

_WIDTH, _GAP, _HEIGHT, _STEP, _TOP, _LEFT = 190, 34, 26, 42, 58, 20
_COLORS = {
    "ConstantText": "#eceff1",
    "Argument": "#bbdefb",
    "Variable": "#e1bee7",
    "Gen": "#c8e6c9",
    "Select": "#ffe0b2",
    "Media": "#b2ebf2",
    "Fork": "#fff9c4",
    "ForkItem": "#fffde7",
    "Join": "#fff9c4",
}
_LEGEND = ("ConstantText", "Argument", "Variable", "Gen", "Select", "Fork")
_SIZE = 26  # characters of a label in a box


def svg_of(picture: Picture) -> str:
    """The picture as the text of an SVG file."""
    width = 2 * _LEFT + len(picture.columns) * (_WIDTH + _GAP) - _GAP
    width = max(width, 2 * _LEFT + 110 * len(_LEGEND))
    height = _TOP + picture.num_rows * _STEP + 40
    cells = {cell.position: cell for cell in picture.cells}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#607d8b"/></marker>'
        "</defs>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" font-weight="bold">{escape(picture.name)}</text>',
        *_columns(picture),
        *(_arrow(arrow, cells) for arrow in picture.arrows),
        *(_heading(heading, width) for heading in picture.headings),
        *(_cell(cell) for cell in picture.cells),
        *_legend(height),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _x(column: int) -> int:
    return _LEFT + column * (_WIDTH + _GAP)


def _y(row: int) -> int:
    return _TOP + row * _STEP


def _columns(picture: Picture) -> Iterator[str]:
    for column, name in enumerate(picture.columns):
        middle = _x(column) + _WIDTH // 2
        yield f'<text x="{middle}" y="44" text-anchor="middle" fill="#546e7a">{escape(name)}</text>'


def _cell(cell: Cell) -> str:
    x, y, color = _x(cell.column), _y(cell.row), _COLORS.get(cell.kind, "#fafafa")
    label = cell.label if len(cell.label) <= _SIZE else cell.label[: _SIZE - 1] + "…"
    box = (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{color}" '
        'stroke="#90a4ae"/>'
    )
    text = (
        f'<text x="{x + _WIDTH // 2}" y="{y + 17}" text-anchor="middle" xml:space="preserve">'
        f"{escape(label)}</text>"
    )
    return f"<g><title>{cell.position}: {escape(cell.label)}</title>{box}{text}</g>"


def _arrow(arrow: Arrow, cells: dict[int, Cell]) -> str:
    start, end = cells[arrow.start], cells[arrow.end]
    x1, y1 = _x(start.column) + _WIDTH // 2, _y(start.row) + _HEIGHT
    x2, y2 = _x(end.column) + _WIDTH // 2, _y(end.row) - 1
    side = _WIDTH // 2 if start.column < end.column else -_WIDTH // 2
    if start.column == end.column:
        path = f"M{x1} {y1} L{x2} {y2}"
    elif end.kind == "ForkItem":
        middle = y1 - _HEIGHT // 2
        path = f"M{x1 + side} {middle} C{x2} {middle} {x2} {middle} {x2} {y2}"
    else:
        middle = y2 + _HEIGHT // 2
        path = f"M{x1} {y1} C{x1} {middle} {x1} {middle} {x2 - side} {middle}"
    dashes = ' stroke-dasharray="4 3"' if arrow.is_between else ""
    return f'<path d="{path}" fill="none" stroke="#607d8b"{dashes} marker-end="url(#end)"/>'


def _heading(heading: Heading, width: int) -> str:
    y = _y(heading.row)
    line = f'<path d="M{_LEFT} {y + 2} L{width - _LEFT} {y + 2}" stroke="#b0bec5"/>'
    text = f'<text x="{_LEFT}" y="{y + 18}" font-style="italic">{escape(heading.text)}</text>'
    return line + text


def _legend(height: int) -> Iterator[str]:
    for number, kind in enumerate(_LEGEND):
        x, y = _LEFT + number * 110, height - 24
        box = f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_COLORS[kind]}"'
        yield f'{box} stroke="#90a4ae"/>'
        yield f'<text x="{x + 17}" y="{y + 10}" font-size="11">{kind}</text>'
