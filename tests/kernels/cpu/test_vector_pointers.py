"""Vectors at addresses, and sums of several at once."""

from __future__ import annotations

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from forkroot.kernels.cpu.jit import vector_pointers as pointers  # noqa: E402
from forkroot.kernels.cpu.jit.vectors import NARROW, narrow  # noqa: E402


@pytest.mark.parametrize(("like", "lanes"), [(pointers.half, pointers.HALF), (narrow, NARROW)])
def test_as_many_vectors_as_they_have_lanes_are_summed_in_their_order(
    like: object, lanes: int
) -> None:
    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def add_up(numbers, interleaved, sums):  # type: ignore[no-untyped-def]
        size = 4 * lanes
        at, to = np.intp(numbers.ctypes.data), np.intp(interleaved.ctypes.data)
        for i in range(0, lanes, 4):
            pointer = at + i * size
            x0, x1 = pointers.read(pointer, like()), pointers.read(pointer + size, like())
            x2 = pointers.read(pointer + 2 * size, like())
            x3 = pointers.read(pointer + 3 * size, like())
            pointers.write(to + i // 4 * size, pointers.interleave_sums(x0, x1, x2, x3))
        pointers.write(np.intp(sums.ctypes.data), pointers.reduce_interleaved(to, like()))

    rng = np.random.default_rng(0)
    numbers = rng.integers(-100, 100, (lanes, lanes)).astype(np.float32)
    interleaved, sums = np.zeros((lanes // 4, lanes), np.float32), np.zeros(lanes, np.float32)
    add_up(numbers, interleaved, sums)
    assert sums.tolist() == numbers.sum(1).tolist()
    assert interleaved.reshape(-1, lanes // 4, 4).sum(1).ravel().tolist() == sums.tolist()


def test_products_of_long_vectors_are_added_part_by_part() -> None:
    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def multiply(x, y, total):  # type: ignore[no-untyped-def]
        at = np.intp(total.ctypes.data)
        left = pointers.read(np.intp(x.ctypes.data), pointers.many())
        right = pointers.read(np.intp(y.ctypes.data), pointers.many())
        scaled = pointers.fma_scalar(pointers.half(), at + 4, pointers.read(at, pointers.half()))
        pointers.write(at, pointers.fma_parts(scaled, left, right))

    rng = np.random.default_rng(1)
    x, y = rng.integers(-9, 9, (2, pointers.MANY)).astype(np.float32)
    total = rng.integers(-9, 9, pointers.HALF).astype(np.float32)
    wanted = total * total[1] + (x * y).reshape(4, -1).sum(0)
    multiply(x, y, total)
    assert total.tolist() == wanted.tolist()
