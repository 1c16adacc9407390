"""Linear layers as compiled code calls them: by address, with the bias. Only for float32 on a CPU;
needs numba."""

from __future__ import annotations

from numba import carray  # type: ignore[attr-defined]

from ..jit.addresses import floats, record, records, words
from ..jit.callees import callee
from . import bf16_pairs, bf16x3, packed_linear

# A packed matrix [depth, width] of so many numbers in all. weight_terms: bfloat16 terms of each
# number where it is split; row_terms: of each number of rows. bias: 0 for none.
MATRIX = record("entry depth width weights num_numbers num_panels weight_terms row_terms bias")
_matrix_at = records(MATRIX)
_multiply_packed, _multiply_bf16x3 = callee(packed_linear.multiply), callee(bf16x3.multiply)
_multiply_pairs = callee(bf16_pairs.multiply)


def packed_f32(matrix_at, x_at, rows, out_at, is_added):
    """By `packed_linear`: out [rows, width] is x [rows, depth] times the matrix, plus the bias,
    plus its old value if is_added."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    _packed(matrix, floats(matrix.weights), x_at, rows, out_at, is_added)


def packed_bf16(matrix_at, x_at, rows, out_at, is_added):
    """The same, of bfloat16 weights."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    _packed(matrix, words(matrix.weights), x_at, rows, out_at, is_added)


@callee
def _packed(matrix, weights, x_at, rows, out_at, is_added):
    x, out = _ends(matrix, x_at, rows, out_at)
    numbers = carray(weights, matrix.num_numbers)
    _multiply_packed(x, numbers, out, is_added != 0, 0, matrix.num_panels)
    _add_bias(matrix, out)


def packed_pairs(matrix_at, x_at, rows, out_at, is_added):
    """By `bf16_pairs`."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    x, out = _ends(matrix, x_at, rows, out_at)
    numbers = carray(floats(matrix.weights), matrix.num_numbers)
    _multiply_pairs(x, numbers, out, is_added != 0, 0, matrix.num_panels)
    _add_bias(matrix, out)


def bf16x3_linear(matrix_at, x_at, rows, out_at, is_added):
    """By `bf16x3`."""
    matrix = carray(_matrix_at(matrix_at), 1)[0]
    numbers = carray(words(matrix.weights), matrix.num_numbers)
    x, out = _ends(matrix, x_at, rows, out_at)
    terms = matrix.weight_terms, matrix.row_terms
    _multiply_bf16x3(*terms, x, numbers, out, is_added != 0, 0, matrix.num_panels)
    _add_bias(matrix, out)


@callee
def _ends(matrix, x_at, rows, out_at):
    return carray(floats(x_at), (rows, matrix.depth)), carray(floats(out_at), (rows, matrix.width))


@callee
def _add_bias(matrix, rows):
    if matrix.bias:
        bias = carray(floats(matrix.bias), matrix.width)
        for row in range(len(rows)):
            for i in range(len(bias)):
                rows[row, i] += bias[i]
