"""The longest chain of intervals is the one that trying all finds."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from forkroot.core.common.intervals import Chains, Steps, longest_chain, steps_of

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
    assert steps_of(intervals).most == found


@given(INTERVALS, st.integers(-1, 17))
def test_as_many_as_groups_that_are_apart_came_one_after_another(
    intervals: list[tuple[float, float]], time: int
) -> None:
    groups = [{number} for number in range(len(intervals))]
    for one, other in combinations(range(len(intervals)), 2):
        (begin, end), (start, stop) = intervals[one], intervals[other]
        if begin <= stop and start <= end:
            first = next(it for it in groups if one in it)
            second = next(it for it in groups if other in it)
            if first is not second:
                groups.remove(second)
                first |= second
    later = {number for number, (begin, _) in enumerate(intervals) if begin > time}
    found = Chains(intervals).after(time)
    assert found.fewest == sum(1 for group in groups if group & later)
    assert found.most == longest_chain(intervals[number] for number in later)
    assert found.fewest <= found.most


def test_branches_that_begin_late_are_not_known_to_wait_for_others() -> None:
    two_branches = [(0, 10), (11, 20), (5, 12), (13, 25)]
    assert steps_of(two_branches) == Steps(1, 2)
    assert steps_of([(0, 1), (2, 3), (4, 5)]) == Steps(3, 3)
