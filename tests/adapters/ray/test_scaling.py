"""How many replicas a load needs: patience, hysteresis and bounds. No Ray is needed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.ray.scaling import Bounds, Scaler
from forkroot.core.api.protocol import InvalidCall

BOUNDS = Bounds(1, 3, busy=10, slack=0.5, patience_up=5, patience_down=60)


def test_one_more_is_wanted_once_the_load_was_high_for_long_enough() -> None:
    scaler = Scaler(BOUNDS)
    assert [scaler.wanted(now, 1, 11) for now in (0, 4, 5)] == [1, 1, 2]
    assert [scaler.wanted(now, 2, 25) for now in (6, 10, 11)] == [2, 2, 3]
    assert [scaler.wanted(now, 3, 100) for now in (12, 100, 1000)] == [3, 3, 3]


def test_a_short_peak_changes_nothing() -> None:
    scaler = Scaler(BOUNDS)
    loads = [(0, 99), (4, 99), (4.5, 10), (5, 99), (9, 99)]
    assert [scaler.wanted(now, 1, load) for now, load in loads] == [1] * 5


def test_one_less_is_wanted_once_the_load_was_low_for_long_enough() -> None:
    scaler = Scaler(BOUNDS)
    assert [scaler.wanted(now, 2, 5) for now in (0, 59, 60)] == [2, 2, 1]
    assert [scaler.wanted(now, 1, 0) for now in (61, 200)] == [1, 1]


def test_what_one_replica_less_would_not_carry_with_ease_keeps_it() -> None:
    scaler = Scaler(BOUNDS)
    assert [scaler.wanted(now, 2, 6) for now in (0, 60, 1000)] == [2, 2, 2]


def test_a_lost_replica_is_wanted_again_at_once() -> None:
    assert Scaler(Bounds(2, 4)).wanted(0, 1, 0) == 2
    assert Scaler(Bounds(1, 2)).wanted(0, 3, 0) == 2


@given(
    st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 200)), min_size=1, max_size=60),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_the_number_stays_in_its_bounds_and_moves_by_one(
    loads: list[tuple[float, int]], least: int, more: int
) -> None:
    bounds = Bounds(least, least + more, busy=10, patience_up=5, patience_down=20)
    scaler, now, num = Scaler(bounds), 0.0, least
    changes: list[tuple[float, int]] = []
    for seconds, load in loads:
        now += seconds
        wanted = scaler.wanted(now, num, load)
        assert bounds.least <= wanted <= bounds.most
        assert abs(wanted - num) <= 1
        if wanted != num:
            changes.append((now, wanted - num))
        num = wanted
    for (before, first), (after, second) in pairwise(changes):
        if first != second:  # no swinging to and fro
            assert after - before >= min(bounds.patience_up, bounds.patience_down)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("min_replicas", {"least": 0, "most": 2}),
        ("min_replicas", {"least": 3, "most": 2}),
        ("max_replicas", {"least": 1, "most": 2.5}),
        ("busy", {"least": 1, "most": 2, "busy": 0}),
    ],
)
def test_bounds_that_make_no_sense_are_named(name: str, values: dict[str, float]) -> None:
    with pytest.raises(InvalidCall, match=f"invalid {name}="):
        Bounds(**values)  # type: ignore[arg-type]
