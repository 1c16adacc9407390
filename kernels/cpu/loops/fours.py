"""Four tiles of sums, 0 to 3, and what they are added up from: two tiles of rows, 4 and 5, by two
of a panel's columns, 6 and 7. Needs numba and a processor that multiplies tiles (`amx`)."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg"

from __future__ import annotations

from numba import njit

from ..jit.amx import BYTES, ROWS, add_product, clear, read, read_once, write
from ..jit.vectors import fetch, fetch_far

_LINE = BYTES // 2  # words that a cache fetches at a time
_compiled = njit(error_model="numpy", nogil=True, forceinline=True)


@_compiled
def fetch_lines(panels, at, later, lines):
    """So many lines: from one place on what comes soon, from so far behind it what comes later, if
    that is not 0. Gives the next place. Products wait for lines that are fetched all at once."""
    for line in range(lines):
        fetch(panels, at + line * _LINE)
    if later:
        for line in range(lines):
            fetch_far(panels, at + later + line * _LINE)
    return at + lines * _LINE


@_compiled
def take_rows(words, first, second):
    """They pass the nearest cache by, where panels stay."""
    read_once(4, words, first, BYTES)
    read_once(5, words, second, BYTES)


@_compiled
def take_panel(panels, left, right):
    read(6, panels, left, BYTES)
    read(7, panels, right, BYTES)


@_compiled
def add_four():
    add_product(0, 4, 6)
    add_product(1, 4, 7)
    add_product(2, 5, 6)
    add_product(3, 5, 7)


@_compiled
def clear_sums():
    clear(0)
    clear(1)
    clear(2)
    clear(3)


@_compiled
def take_sums(sums, to):
    read(0, sums, to, BYTES)
    read(1, sums, to + ROWS * ROWS, BYTES)
    read(2, sums, to + 2 * ROWS * ROWS, BYTES)
    read(3, sums, to + 3 * ROWS * ROWS, BYTES)


@_compiled
def keep_sums(sums, to):
    """[4, 16, 16]: two of rows by two of a panel, or one of rows by four."""
    write(0, sums, to, BYTES)
    write(1, sums, to + ROWS * ROWS, BYTES)
    write(2, sums, to + 2 * ROWS * ROWS, BYTES)
    write(3, sums, to + 3 * ROWS * ROWS, BYTES)
