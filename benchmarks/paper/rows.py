"""Rows of measured values, and the file that keeps them as they come.

The first line of the file is the head: the settings that rows depend on, and the machine. Each
other line is a step that ended, with its rows; a last line that was cut off is forgotten. It knows
nothing of figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forkroot.core.api.errors import InvalidCall

FILE = "rows.jsonl"


@dataclass(frozen=True, slots=True)
class Row:
    """One value of a figure.

    figure, measure: which figure, and what is measured, such as "programs per second".
    x, series: the category or number on the axis, and whose value it is.
    value: None: not measured, and `note` says why. low, high: least and most of the rounds.
    bar: what it should reach, or stay below; None: nothing.
    paper: the paper's own number for it, as text.
    note: where the data is from, or under what conditions it was measured.
    """

    figure: str
    measure: str
    x: str | float
    series: str
    value: float | None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    bar: float | None = None
    paper: str = ""
    note: str = ""


def missing(figure: str, measure: str, x: str | float, series: str, reason: str) -> Row:
    """A row that says why there is no value."""
    return Row(figure, measure, x, series, None, note=reason)


class RowFile:
    """The steps of a run that ended, in a file of a folder.

    Raises InvalidCall where the folder has rows of other settings, or of another machine.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], machine: str) -> None:
        self.path = folder / FILE
        self.steps: dict[str, list[Row]] = {}
        self.seconds: dict[str, float] = {}
        self.loads: dict[str, float] = {}
        self._head = {"settings": dict(settings), "machine": machine}
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self._read()
        else:
            self._append(self._head)

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order in which their steps ended."""
        return [row for rows in self.steps.values() for row in rows]

    def add(self, step: str, rows: Iterable[Row], seconds: float, load: float = 0.0) -> None:
        """Keep the rows of a step, on the disk when this returns. load: of the machine, before."""
        self._take(step, list(rows), round(seconds, 2), load)
        kept = [asdict(row) for row in self.steps[step]]
        self._append({"step": step, "seconds": self.seconds[step], "load": load, "rows": kept})

    def _take(self, step: str, rows: list[Row], seconds: float, load: float) -> None:
        self.steps[step], self.seconds[step], self.loads[step] = rows, seconds, load

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):  # the line at which a run was killed
            with self.path.open("r+b") as file:
                file.truncate(end)
        lines = [json.loads(line) for line in data[:end].splitlines()]
        if not lines:
            self._append(self._head)
            return
        self._check(lines[0])
        for line in lines[1:]:
            rows = [Row(**row) for row in line["rows"]]
            self._take(line["step"], rows, line["seconds"], line["load"])

    def _check(self, head: Mapping[str, Any]) -> None:
        kept = {**head["settings"], "machine": head["machine"]}
        for name, value in {**self._head["settings"], "machine": self._head["machine"]}.items():
            if kept.get(name) != value:
                allowed = f"{kept.get(name)!r}, as the rows in {self.path}; or another --out"
                raise InvalidCall(name, value, allowed)
