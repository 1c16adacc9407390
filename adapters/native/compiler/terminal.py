"""A picture as text: one column a stream, a line for each row."""

from __future__ import annotations

from .picture import Cell, Picture

_NARROW, _WIDE = 12, 30
_SIGNS = {"Argument": "▸", "Variable": "◂", "Gen": "●", "Select": "◆", "Fork": "┬", "Join": "┴"}


def text_of(picture: Picture, width: int = 120) -> str:
    """The picture in lines of at most `width` characters, but for very many streams."""
    num = len(picture.columns)
    size = max(_NARROW, min(_WIDE, width // num - 1))
    rows: dict[int, dict[int, Cell]] = {}
    for cell in picture.cells:
        rows.setdefault(cell.row, {})[cell.column] = cell
    spans = _spans(picture)
    headings = {heading.row: heading.text for heading in picture.headings}
    lines = [picture.name, _line([name.center(size) for name in picture.columns])]
    for row in range(picture.num_rows):
        if row in headings:
            lines.append(f"── {headings[row]} ".ljust(size * num, "─"))
            continue
        found = rows.get(row, {})
        lines.append(_line([_part(found.get(it), spans[it], row, size) for it in range(num)]))
    return "\n".join(lines) + "\n"


def _spans(picture: Picture) -> list[tuple[int, int]]:
    """The first and the last row of each column."""
    found = [(1 << 30, -1)] * len(picture.columns)
    for cell in picture.cells:
        first, last = found[cell.column]
        found[cell.column] = min(first, cell.row), max(last, cell.row)
    return found


def _part(cell: Cell | None, span: tuple[int, int], row: int, size: int) -> str:
    if cell is None:
        return ("│" if span[0] < row < span[1] else "").center(size)
    text = f"{_SIGNS.get(cell.kind, '·')} {cell.label}"
    return text[: size - 1].ljust(size) if len(text) < size else text[: size - 2] + "… "


def _line(parts: list[str]) -> str:
    return " ".join(parts).rstrip()
