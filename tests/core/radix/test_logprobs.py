"""Rows of log-probabilities: what is known, taken over and reported."""

from __future__ import annotations

import numpy as np

from forkroot.core.radix.logprobs import Logprobs

NAN = float("nan")


def rows(count: int, num_top: int, value: float = -1.0, size: int = 1000) -> Logprobs:
    """Rows of a vocabulary of `size` tokens."""
    top = tuple((token, value - token) for token in range(min(num_top, size)))
    return Logprobs.of([value] * count, [top] * count, num_top)


def test_rows_with_fewer_alternatives_than_requested_are_not_known():
    found = rows(4, 2)
    assert [found.num_known(0, 4, k) for k in (0, 1, 2, 3)] == [4, 4, 4, 0]
    assert found.num_known(1, 3, 2) == 2
    assert found.num_known(3, 3, 2) == 0


def test_a_row_is_taken_over_only_where_it_knows_more():
    kept = Logprobs.unknown(6)
    kept.write(1, rows(3, 1, -1.0))
    kept.write(2, rows(2, 0, -2.0))
    assert kept.counts.tolist() == [-1, 1, 1, 1, -1, -1]
    kept.write(3, rows(2, 3, -3.0))
    assert kept.values[1:5].tolist() == [-1.0, -1.0, -3.0, -3.0]
    assert kept.counts.tolist() == [-1, 1, 1, 3, 3, -1]
    assert kept[1:3].pairs(1) == [((0, -1.0),)] * 2
    assert kept[3:5].pairs(2) == [((0, -3.0), (1, -4.0))] * 2
    kept.check(6)


def test_a_small_vocabulary_gives_fewer_alternatives_than_requested():
    kept = Logprobs.unknown(2)
    kept.write(0, rows(2, 9, size=3))
    assert kept.num_known(0, 2, 9) == 2
    joined = Logprobs.join([kept, kept[:1]], 9)
    assert [len(top) for top in joined.pairs(9)] == [3, 3, 3]


def test_a_row_that_is_not_finite_is_not_known():
    found = Logprobs.of([-1.0, NAN, -np.inf], [(), (), ()], 0)
    assert found.counts.tolist() == [0, -1, 0]
    assert found.num_known(0, 3, 0) == 1
    assert found.num_known(2, 3, 0) == 1


def test_copies_and_joins_are_on_their_own():
    whole = rows(4, 2)
    half = whole[:2]
    half.values[:] = 0.0
    assert whole.values.tolist() == [-1.0] * 4
    assert len(Logprobs.join([], 2)) == len(Logprobs.join([whole[2:2]], 2)) == 0
    assert Logprobs.of([], [], 2).num_bytes == 0
    assert whole.num_bytes == 4 * (4 + 2 + 2 * 8)
