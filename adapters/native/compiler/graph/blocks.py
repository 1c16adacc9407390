"""What a graph has beside its nodes: parameters, and the blocks between switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .nodes import Read
from .values import Value


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of the program.

    is_required: a run must give it; otherwise it is `value`, plain data. is_fixed: the graph was
    traced for this value, and no run may give another one.
    """

    name: str
    is_required: bool = True
    value: Any = None
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """The block that goes on where one of these options was chosen."""

    options: tuple[str, ...]
    block: int


@dataclass(frozen=True, slots=True)
class Switch:
    """Where the program goes on, by the option that a select has chosen. Its cases have each
    option once."""

    read: Read
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """The nodes from position `start` to `end` (half-open), and what comes behind them: a switch,
    or the end of the program, which returns `value`."""

    start: int
    end: int
    switch: Switch | None = None
    value: Value | None = None
