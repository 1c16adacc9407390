"""Patterns of the numbers between two bounds, as DSPy's parsers read them.

A bounded number is written with few decimals: what a program asks for, not all that a float holds.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

from ....core.fsm.json_schema.patterns.intervals import Interval
from ....core.fsm.json_schema.patterns.multiples import digit_trie, multiple_pattern
from ....core.fsm.json_schema.patterns.numbers import number_pattern

FREE_INTEGER = "-?(?:0|[1-9][0-9]{0,17})"
FREE_NUMBER = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,12})?"
NUM_DIGITS, NUM_DECIMALS = 15, 12
SHORT = 100  # length of an interval that is cut into as many values, or up to ten times as many
MOST_MULTIPLES = 1000
_INTEGERS = Interval(Decimal(-(10**NUM_DIGITS)), Decimal(10**NUM_DIGITS))


def integers(interval: Interval) -> str | None:
    """The integers of an interval; None: there are none."""
    if interval == Interval():
        return FREE_INTEGER
    return multiple_pattern(interval.intersect(_INTEGERS), Fraction(1))


def numbers(interval: Interval) -> str | None:
    """Decimal numbers of an interval; None: none is found."""
    if interval == Interval():
        return FREE_NUMBER
    if interval.low is None or interval.high is None or interval.high - interval.low > SHORT:
        return number_pattern(interval, NUM_DIGITS, NUM_DECIMALS)
    step = Decimal(1)
    while (interval.high - interval.low) / step < SHORT and step > Decimal("1e-9"):
        step /= 10
    return multiples(interval, step)


def multiples(interval: Interval, step: Decimal) -> str | None:
    """The first multiples of a number in an interval that begins, or ends, near 0."""
    start = 0 if interval.low is None else int((interval.low / step).to_integral(ROUND_CEILING))
    values = [step * (start + count) for count in range(MOST_MULTIPLES)]
    texts = [format(value.normalize(), "f") for value in values if interval.holds(value)]
    return digit_trie(texts) if texts else None
