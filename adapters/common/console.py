"""Consoles of the command line: a terminal's own width, and no width for what is piped.

It knows no command and no table.
"""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console

_PIPED_WIDTH = 10_000  # columns: what reads a pipe or a file wraps as it likes


def console(**settings: Any) -> Console:
    """A console of rich on standard output, or with `stderr=True` on standard error. Where that is
    no terminal, its lines are not wrapped, unless COLUMNS sets a width."""
    found = Console(**settings)
    if not found.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        found.width = _PIPED_WIDTH
    return found
