"""How values are written. All parts of a report write a value in the same way."""

from __future__ import annotations

from ..rows import Row

NOT_MEASURED = "not measured"


def shown(value: float) -> str:
    """Three digits that count, and no more zeros than needed."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 0.001:
        return f"{value:.2e}"
    text = (
        f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if abs(value) >= 1 else f"{value:.3g}"
    )
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell(row: Row) -> str:
    """A row's value with its unit and, where rounds differ, their least and most."""
    if row.value is None:
        return NOT_MEASURED
    unit = {"×": "×", "%": " %", "": ""}.get(row.unit, f" {row.unit}")
    text = shown(row.value) + unit
    if row.low is not None and row.high is not None:
        text += f" ({shown(row.low)}…{shown(row.high)})"
    return text


def category(x: str | float) -> str:
    """A category, or a number of an axis."""
    return x if isinstance(x, str) else f"{x:,.0f}" if float(x).is_integer() else f"{x:g}"
