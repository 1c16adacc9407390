"""The longest chain of intervals is the one that trying all finds."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from forkroot.core.common.intervals import longest_chain

INTERVALS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 4)).map(lambda it: (it[0], it[0] + it[1])),
    max_size=7,
)


@given(INTERVALS)
def test_it_is_the_most_that_do_not_overlap(intervals: list[tuple[float, float]]) -> None:
    found = 0
    for size in range(len(intervals) + 1):
        for some in combinations(sorted(intervals), size):
            if all(one[1] < other[0] for one, other in pairwise(some)):
                found = size
    assert longest_chain(intervals) == found
