"""A picture as text: one column a stream, a line for each row."""

from __future__ import annotations

from shutil import get_terminal_size

from .picture import Cell, Picture

_NARROW, _WIDE = 12, 30
_SIGNS = {"Argument": "▸", "Variable": "◂", "Gen": "●", "Select": "◆", "Fork": "┬", "Join": "┴"}


def text_of(picture: Picture, width: int | None = None) -> str:
    """The picture in lines of at most `width` characters (None: of the terminal, or 120); a line
    for each node where the streams do not fit beside each other."""
    width = get_terminal_size((120, 24)).columns if width is None else width
    num = len(picture.columns)
    size = min(_WIDE, width // num - 1)
    if size < _NARROW and num > 1:
        return _listed(picture, width)
    size = max(_NARROW, size)
    rows: dict[int, dict[int, Cell]] = {}
    for cell in picture.cells:
        rows.setdefault(cell.row, {})[cell.column] = cell
    spans = _spans(picture)
    headings = {heading.row: heading.text for heading in picture.headings}
    lines = [picture.name, _line([name.center(size) for name in picture.columns])]
    for row in range(picture.num_rows):
        if row in headings:
            lines.append(_cut(f"── {headings[row]} ".ljust(size * num, "─"), width))
            continue
        found = rows.get(row, {})
        lines.append(_line([_part(found.get(it), spans[it], row, size) for it in range(num)]))
    return "\n".join(lines) + "\n"


def _listed(picture: Picture, width: int) -> str:
    """A line for each node, with the name of its stream."""
    longest = max(map(len, picture.columns))
    lines = {heading.row: [f"── {heading.text}"] for heading in picture.headings}
    for cell in sorted(picture.cells, key=lambda it: (it.row, it.column)):
        name = picture.columns[cell.column].ljust(longest)
        sign = _SIGNS.get(cell.kind, "·")
        lines.setdefault(cell.row, []).append(f"{name} {sign} {cell.label}")
    found = [picture.name, *(line for row in sorted(lines) for line in lines[row])]
    return "\n".join(_cut(line, width) for line in found) + "\n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"


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
