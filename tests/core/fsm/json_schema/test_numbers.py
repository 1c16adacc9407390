"""Numbers between bounds, against arithmetic."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from fractions import Fraction

import pytest

from forkroot.core.fsm.json_schema.patterns.intervals import Interval
from forkroot.core.fsm.json_schema.patterns.multiples import multiple_pattern
from forkroot.core.fsm.json_schema.patterns.numbers import number_pattern
from forkroot.core.fsm.regex.errors import UnsupportedSchema


def matches(pattern: str | None, text: str) -> bool:
    return pattern is not None and re.fullmatch(pattern, text) is not None


def between(
    low: object, high: object, is_low_open: bool = False, is_high_open: bool = False
) -> Interval:
    bounds = [None if bound is None else Decimal(str(bound)) for bound in (low, high)]
    return Interval(bounds[0], bounds[1], is_low_open, is_high_open)


def integer_pattern(interval: Interval, multiple: int = 1) -> str | None:
    return multiple_pattern(interval, Fraction(multiple))


def test_integers_between_bounds_are_written_out_digit_by_digit() -> None:
    assert integer_pattern(between(0, 150)) == "(?:[0-9]|1[0-4][0-9]|150|[1-9][0-9])"
    assert integer_pattern(between(1, 1)) == "1"
    assert integer_pattern(between(-1, 1)) == "(?:[0-1]|-1)"
    assert integer_pattern(between(2, 1)) is None
    assert integer_pattern(between(0.5, 0.9)) is None


@pytest.mark.parametrize("multiple", [1, 2, 3, 7, 25, 100])
def test_exactly_the_integers_in_range_match(multiple: int) -> None:
    rng = random.Random(multiple)
    for _ in range(30):
        scale = 10 ** rng.randint(0, 3)
        low, high = sorted(rng.randint(-scale, scale) for _ in range(2))
        is_open = rng.random() < 0.5
        pattern = integer_pattern(between(low, high, is_open, is_open), multiple)
        for number in {*range(low - 15, low + 15), *range(high - 15, high + 15), 0}:
            is_inside = low < number < high if is_open else low <= number <= high
            assert matches(pattern, str(number)) is (is_inside and number % multiple == 0)


def test_open_sides_end_at_nineteen_digits() -> None:
    pattern = integer_pattern(between(5, None))
    assert matches(pattern, "9" * 19)
    assert not matches(pattern, "1" + "0" * 19)
    assert not matches(pattern, "4")
    with pytest.raises(UnsupportedSchema, match="19 digits"):
        integer_pattern(between(10**19, None))


def test_multiples_beyond_a_thousand_are_those_made_of_blocks_of_digits() -> None:
    pattern = integer_pattern(Interval(), 7)
    assert [n for n in range(-200, 200) if matches(pattern, str(n))] == [
        n for n in range(-200, 200) if n % 7 == 0
    ]
    rng = random.Random(0)
    large = [rng.randint(10**9, 10**12) for _ in range(3_000)]
    found = [n for n in large if matches(pattern, str(n))]
    assert all(n % 7 == 0 for n in found)
    assert matches(pattern, "-" + "7" * 16)
    pattern = integer_pattern(Interval(), 25)
    assert [n for n in range(-200, 200) if matches(pattern, str(n))] == list(range(-200, 200, 25))


def test_exactly_the_decimals_in_range_match() -> None:
    rng = random.Random(0)
    for _ in range(200):
        places = rng.randint(0, 4)
        bounds = sorted(Decimal(rng.randint(-3000, 3000)).scaleb(-places) for _ in range(2))
        interval = Interval(bounds[0], bounds[1], rng.random() < 0.5, rng.random() < 0.5)
        pattern = number_pattern(interval)
        steps = (Decimal(rng.randint(-9, 9)).scaleb(-rng.randint(0, 6)) for _ in range(40))
        for number in (rng.choice(bounds) + step for step in steps):
            text = format(number, "f")
            is_zero_below = text.startswith("-") and number == 0
            assert matches(pattern, text) is (interval.holds(number) and not is_zero_below)


def test_no_decimal_rounds_to_a_bound_that_it_must_not_touch() -> None:
    pattern = number_pattern(between(None, 0.3, is_high_open=True))
    assert matches(pattern, "0.29999999999999")
    assert not matches(pattern, "0.2999999999999999999")
    assert matches(number_pattern(between("-1e308", "1e308")), "-" + "9" * 19 + ".5")
    with pytest.raises(UnsupportedSchema, match="exclusive"):
        number_pattern(between(10**16, None, is_low_open=True))


def test_numbers_may_have_zeros_at_the_end_but_none_in_front() -> None:
    pattern = number_pattern(between(1, 2))
    assert all(matches(pattern, text) for text in ("1", "1.0", "1.50", "2.000"))
    assert not any(
        matches(pattern, text) for text in ("01", "1.", ".5", "+1", "2.01", "0.99", "1e0")
    )


def test_free_numbers_take_exponents_that_fit_a_double() -> None:
    pattern = number_pattern(Interval())
    assert all(matches(pattern, text) for text in ("0", "-0.5", "1e-7", "6.02E+23", "-12"))
    assert not any(
        matches(pattern, text) for text in ("1e999", "1.e5", "--1", "1e", "Infinity", "NaN")
    )


@pytest.mark.parametrize("multiple", ["0.5", "0.25", "0.1", "0.05", "0.01", "0.001", "1.5"])
@pytest.mark.parametrize("high", [None, 999, 60_000])
def test_multiples_of_a_fraction_are_json_near_zero_and_far_away(
    multiple: str, high: int | None
) -> None:
    pattern = multiple_pattern(between(0, high), Fraction(multiple))
    rng, last = random.Random(multiple), 10**7 if high is None else high
    found = 0
    for _ in range(2_000):
        whole = rng.choice((rng.randrange(100), rng.randrange(last)))
        text = f"{whole}{rng.choice(('', '.', '.0', '.5', '.25', '.75', '.50', '.01', '.001'))}"
        if matches(pattern, text):
            found += 1
            assert (Fraction(text) / Fraction(multiple)).denominator == 1
            assert (float(text) / float(multiple)).is_integer()
            assert json.loads(text) <= last
    assert found > 100
