"""The AMX microkernel of 2x2 tiles: sums in tiles 0 to 3, two tiles of rows in 4 and 5, two of
weights in 6 and 7. Needs numba and a processor with AMX (`amx`)."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg"

from __future__ import annotations

from numba import njit

from ..jit.amx import BYTES, ROWS, add_product, clear, read, read_once, write
from ..jit.vectors import fetch, fetch_far

_LINE = BYTES // 2  # words that a cache fetches at a time
_compiled = njit(error_model="numpy", nogil=True, forceinline=True)


@_compiled
def fetch_lines(weights, at, later, lines):
    """Prefetch so many lines from an index on into the first cache, and as many from `later` behind
    it into the second, if that is not 0. Gives the next index. Products wait where many lines are
    fetched at once."""
    for line in range(lines):
        fetch(weights, at + line * _LINE)
    if later:
        for line in range(lines):
            fetch_far(weights, at + later + line * _LINE)
    return at + lines * _LINE


@_compiled
def load_row_tiles(words, first, second):
    """Load tiles of rows past the nearest cache, where panels stay."""
    read_once(4, words, first, BYTES)
    read_once(5, words, second, BYTES)


@_compiled
def load_weight_tiles(weights, left, right):
    read(6, weights, left, BYTES)
    read(7, weights, right, BYTES)


@_compiled
def multiply_2x2():
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
def load_sums(sums, to):
    read(0, sums, to, BYTES)
    read(1, sums, to + ROWS * ROWS, BYTES)
    read(2, sums, to + 2 * ROWS * ROWS, BYTES)
    read(3, sums, to + 3 * ROWS * ROWS, BYTES)


@_compiled
def store_sums(sums, to):
    """[4, 16, 16]: two tiles of rows by two of weights, or one of rows by four."""
    write(0, sums, to, BYTES)
    write(1, sums, to + ROWS * ROWS, BYTES)
    write(2, sums, to + 2 * ROWS * ROWS, BYTES)
    write(3, sums, to + 3 * ROWS * ROWS, BYTES)
