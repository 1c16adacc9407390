"""Newer values count more, and few keys are remembered."""

from __future__ import annotations

from forkroot.core.common.recent_means import RecentMeans


def test_a_mean_follows_its_values():
    means = RecentMeans[str](0.25, start=0.0)
    assert means["a"] == 0.0
    means.add("a", 100, first=100)
    assert means["a"] == 100
    for _ in range(40):
        means.add("a", 200, first=7)
    assert 199 < means["a"] <= 200
    means.add("b", 100)
    assert means["b"] == 25


def test_keys_that_got_no_value_for_long_are_forgotten():
    means = RecentMeans[int](0.5, start=1.0, most=3)
    for key in (1, 2, 3, 1, 4):
        means.add(key, 0.0)
    assert len(means) == 3
    assert [means[key] for key in (1, 2, 3, 4)] == [0.25, 1.0, 0.5, 0.5]
