"""Kept tokens: bounds on their number and size, and whose they are."""

from __future__ import annotations

from array import array

from forkroot.core.text.kept_tokens import KeptTokens


def test_parts_are_found_by_namespace_and_place_alone() -> None:
    kept = KeptTokens(8, 1000)
    kept.put("one", "a part", True, (1, 2))
    assert kept.get("one", "a part", True) == array("i", (1, 2))
    assert kept.get("one", "a part", False) is None
    assert kept.get("other", "a part", True) is None


def test_the_oldest_go_first_where_parts_are_too_many() -> None:
    kept = KeptTokens(3, 1000)
    for number in range(5):
        kept.put("", str(number), False, (number,))
    found = [kept.get("", str(number), False) for number in range(5)]
    assert found == [None, None, *(array("i", (number,)) for number in (2, 3, 4))]


def test_characters_and_tokens_are_bounded_together() -> None:
    kept = KeptTokens(100, 100)
    for number in range(10):
        kept.put("", f"{number}" * 20, False, (number,) * 10)
    assert len(kept) == 3
    kept.put("", "9" * 20, False, (9,) * 70)  # put again: it counts once
    assert len(kept) == 1 and kept.get("", "9" * 20, False) == array("i", (9,) * 70)
    kept.put("", "x" * 101, False, ())
    assert len(kept) == 0
    kept.put("", "y", False, (1,))
    assert kept.get("", "y", False) == array("i", (1,))
