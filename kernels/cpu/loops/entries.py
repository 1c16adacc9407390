"""Products with a fixed matrix as compiled code calls them: by address, a bias included. Only for
float32 on a CPU; needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg, var-annotated"

from __future__ import annotations

from numba import carray, njit  # type: ignore[attr-defined]

from ..jit.addresses import floats, record, records, words
from . import panels, thirds

# A matrix [depth, width] in panels of so many numbers in all; thirds: of each number, where it is
# split into some; row_parts: of each number of rows. bias: 0 for none.
MATRIX = record("entry depth width panels num_numbers num_panels thirds row_parts bias")
_compiled = njit(error_model="numpy", nogil=True)
_matrix_at = records(MATRIX)
_by_panels, _by_thirds = _compiled(panels.multiply), _compiled(thirds.multiply)


def paneled(matrix_at, x_at, rows, out_at, is_added):
    """By `panels`: out [rows, width] is x [rows, depth] times the matrix, and the bias; or what it
    was before is added."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    numbers = carray(floats(matrix.panels), matrix.num_numbers)
    x, out = _ends(matrix, x_at, rows, out_at)
    _by_panels(x, numbers, out, is_added != 0, 0, matrix.num_panels)
    _add_bias(matrix, out)


def halved(matrix_at, x_at, rows, out_at, is_added):
    """The same, of bfloat16 numbers."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    numbers = carray(words(matrix.panels), matrix.num_numbers)
    x, out = _ends(matrix, x_at, rows, out_at)
    _by_panels(x, numbers, out, is_added != 0, 0, matrix.num_panels)
    _add_bias(matrix, out)


def in_thirds(matrix_at, x_at, rows, out_at, is_added):
    """By `thirds`."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    numbers = carray(words(matrix.panels), matrix.num_numbers)
    x, out = _ends(matrix, x_at, rows, out_at)
    parts = matrix.thirds, matrix.row_parts
    _by_thirds(*parts, x, numbers, out, is_added != 0, 0, matrix.num_panels)
    _add_bias(matrix, out)


@_compiled
def _ends(matrix, x_at, rows, out_at):
    return carray(floats(x_at), (rows, matrix.depth)), carray(floats(out_at), (rows, matrix.width))


@_compiled
def _add_bias(matrix, rows):
    if matrix.bias:
        bias = carray(floats(matrix.bias), matrix.width)
        for row in range(len(rows)):
            for i in range(len(bias)):
                rows[row, i] += bias[i]
