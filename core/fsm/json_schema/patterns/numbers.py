"""Patterns of the numbers that lie between two bounds. Knows nothing of schemas.

Every number fits in a double and can be read back: integers have at most 19 digits, free numbers a
two-digit exponent. Bounded numbers are written without one, and short enough that none of them
rounds to a bound that it must not touch.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from ...regex.errors import UnsupportedSchema
from .digits import (
    any_fraction,
    digits,
    equal_fractions,
    fractions_from,
    fractions_to,
    fractions_within,
    same_length,
)
from .intervals import Interval
from .spelling import alternatives

NUM_DIGITS = 19
NUM_EXACT = 15  # decimal digits that tell doubles apart
LARGEST = 10**NUM_DIGITS - 1
FREE_NUMBER = r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,20})?(?:[Ee][+\-]?[0-9]{1,2})?"


def number_pattern(
    interval: Interval, num_digits: int = NUM_DIGITS, num_decimals: int = NUM_EXACT
) -> str | None:
    """The numbers of an interval, with decimals where they fit; None: there are none.

    num_digits, num_decimals: at most so many before and after the point of a bounded number.
    """
    if interval.is_empty():
        return None
    if interval.low is None and interval.high is None:
        return FREE_NUMBER
    room = min(_room(interval), num_decimals)
    end = Decimal(10**num_digits)
    return both_signs(
        interval,
        lambda part: _decimals(part.intersect(Interval(high=end, is_high_open=True)), room),
    )


def both_signs(interval: Interval, positive: Callable[[Interval], list[str]]) -> str | None:
    """Numbers of both signs. positive: gives those of an interval that are not below zero."""
    options = positive(interval.intersect(Interval(low=Decimal(0))))
    above = Interval(low=Decimal(0), is_low_open=True)
    negative = positive(interval.mirrored().intersect(above))
    options += [f"-{alternatives(negative)}"] if negative else []
    return alternatives(options) if options else None


def _room(interval: Interval) -> int:
    """How many decimals a number of this interval may have."""
    if (interval.low or 0) > LARGEST or (interval.high or 0) < -LARGEST:
        raise UnsupportedSchema(f"numbers of at most {NUM_DIGITS} digits before the point")
    bounds = [abs(int(bound)) for bound in (interval.low, interval.high) if bound is not None]
    longest = max((len(str(bound)) for bound in bounds if bound <= LARGEST), default=0)
    if longest > NUM_EXACT and (interval.is_low_open or interval.is_high_open):
        raise UnsupportedSchema(f"exclusive bounds of at most {NUM_EXACT} digits")
    return max(1, NUM_EXACT - longest)


def integers(low: int, high: int) -> list[str]:
    """Patterns of the integers in `low` to `high`, where 0 <= low <= high."""
    options: list[str] = []
    whole: list[int] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = min(high, 10**length - 1)
        if (first, last) == (10 ** (length - 1), 10**length - 1):
            whole.append(length)
        else:
            options += same_length(str(first), str(last))
    if whole:
        options.append(f"[1-9]{digits(whole[0] - 1, whole[-1] - 1)}")
    return options


def _decimals(interval: Interval, room: int) -> list[str]:
    """Patterns of the numbers of an interval with both bounds, the lower one >= 0."""
    assert interval.low is not None and interval.high is not None
    if interval.is_empty():
        return []
    low, low_part = _split(interval.low)
    high, high_part = _split(interval.high)
    is_open = (interval.is_low_open, interval.is_high_open)
    if interval.low == interval.high:
        equal = equal_fractions(low_part, room) if len(low_part) <= room else []
        return _with_fraction(str(low), equal)
    if low == high:
        return _with_fraction(str(low), fractions_within(low_part, high_part, is_open, room))
    options = _with_fraction(str(low), fractions_from(low_part, is_open[0], room))
    if high - low > 1:
        whole = alternatives(integers(low + 1, high - 1))
        options += _with_fraction(whole, any_fraction(room))
    return options + _with_fraction(str(high), fractions_to(high_part, is_open[1], room))


def _split(number: Decimal) -> tuple[int, str]:
    whole, _, part = format(number, "f").partition(".")
    return int(whole), part.rstrip("0")


def _with_fraction(whole: str, fractions: list[str]) -> list[str]:
    """The number with any of these fractions; none where there is no fraction."""
    present = [fraction for fraction in fractions if fraction]
    if not present:
        return [whole] if fractions else []
    mark = "?" if "" in fractions else ""
    return [rf"{whole}(?:\.{alternatives(present)}){mark}"]
