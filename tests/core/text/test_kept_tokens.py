"""Kept tokens: bounds on their number and size, and whose they are."""

from __future__ import annotations

import tracemalloc
from array import array

import pytest

from forkroot.core.text.kept_tokens import KeptTokens


def test_parts_are_found_by_namespace_and_place_alone() -> None:
    kept = KeptTokens(8, 10_000)
    kept.put("one", "a part", True, (1, 2))
    assert kept.get("one", "a part", True) == array("i", (1, 2))
    assert kept.get("one", "a part", False) is None
    assert kept.get("other", "a part", True) is None


def test_the_oldest_go_first_where_parts_are_too_many() -> None:
    kept = KeptTokens(3, 10_000)
    for number in range(5):
        kept.put("", str(number), False, (number,))
    found = [kept.get("", str(number), False) for number in range(5)]
    assert found == [None, None, *(array("i", (number,)) for number in (2, 3, 4))]


def test_what_a_part_takes_is_bounded() -> None:
    kept = KeptTokens(100, 1500)
    for number in range(10):
        kept.put("", f"{number}" * 20, False, (number,) * 10)
    assert len(kept) == 3
    kept.put("", "9" * 20, False, (9,) * 200)  # put again: it counts once
    assert len(kept) == 1 and kept.get("", "9" * 20, False) == array("i", (9,) * 200)
    kept.put("", "x" * 1501, False, ())
    assert len(kept) == 0
    kept.put("", "y", False, (1,))
    assert kept.get("", "y", False) == array("i", (1,))


@pytest.mark.parametrize("part", ["a short one", "a long one of ASCII " * 20, "\N{WOMAN}" * 100])
def test_the_bound_is_of_memory_whatever_is_kept(part: str) -> None:
    most = 400_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = KeptTokens(1 << 20, most)
        for number in range(4000):
            kept.put("", f"{part} {number}", False, range(number, number + len(part) // 3))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.5 * most < taken < 1.3 * most
