"""Patterns of the numbers between two bounds, as DSPy's parsers read them.

A bounded number is written with few decimals: what a program asks for, not all that a float holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from ...common.integers import naturals

FREE_INTEGER = "-?(?:0|[1-9][0-9]{0,17})"
FREE_NUMBER = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,12})?"
FRACTION = r"(?:\.[0-9]{1,12})?"
MOST_DIGITS = 15
GRID = 1000  # values that a short interval is cut into
MOST_MULTIPLES = 1000


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from low to high; None: no bound. is_open_x: the bound itself is not in it."""

    low: Decimal | None = None
    high: Decimal | None = None
    is_open_low: bool = False
    is_open_high: bool = False

    def holds(self, value: Decimal) -> bool:
        """Whether the value is in it."""
        if self.low is not None and (value < self.low or (self.is_open_low and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high != self._open_high())

    def mirrored(self) -> Interval:
        """The interval of the negated numbers."""
        low = None if self.high is None else -self.high
        high = None if self.low is None else -self.low
        return Interval(low, high, self.is_open_high, self.is_open_low)

    def _open_high(self) -> Decimal | None:
        return self.high if self.is_open_high else None


def integers(interval: Interval) -> str | None:
    """The integers of an interval; None: there are none."""
    if interval == Interval():
        return FREE_INTEGER
    ways = [_magnitudes(interval), _negative(_magnitudes(interval.mirrored(), 1))]
    return _any(ways)


def numbers(interval: Interval) -> str | None:
    """Decimal numbers of an interval; None: none is found."""
    if interval == Interval():
        return FREE_NUMBER
    low, high = interval.low, interval.high
    if low is not None and high is not None and high - low <= GRID / 10:
        return _grid(interval, low, high)
    ways = [_fractions(interval), _negative(_fractions(interval.mirrored()))]
    return _any([*ways, integers(interval)])


def multiples(interval: Interval, step: Decimal) -> str | None:
    """The first multiples of a number in an interval that begins, or ends, near 0."""
    start = 0 if interval.low is None else int((interval.low / step).to_integral(ROUND_CEILING))
    values = [step * (start + count) for count in range(MOST_MULTIPLES)]
    return _any([_spelled(value) for value in values if interval.holds(value)])


def _ends(interval: Interval, least: int) -> tuple[int, int]:
    """The first and last integer in an interval, from `least` up."""
    low, high = least, 10**MOST_DIGITS
    if interval.low is not None:
        low = max(low, int(interval.low.to_integral(ROUND_CEILING)))
    if interval.high is not None:
        high = min(high, int(interval.high.to_integral(ROUND_FLOOR)))
    low += not interval.holds(Decimal(low)) and low <= high
    high -= not interval.holds(Decimal(high)) and low <= high
    return low, high


def _magnitudes(interval: Interval, least: int = 0) -> str | None:
    low, high = _ends(interval, least)
    return naturals(low, high) if low <= high else None


def _fractions(interval: Interval) -> str | None:
    """Numbers >= 0 with a fraction, between two integers that are both in the interval."""
    low, high = _ends(interval, 0)
    return naturals(low, high - 1) + FRACTION if low < high else None


def _grid(interval: Interval, low: Decimal, high: Decimal) -> str | None:
    """The values of a short interval that have few decimals."""
    step = Decimal(1)
    while (high - low) / step < GRID / 10 and step > Decimal("1e-9"):
        step /= 10
    first = (low / step).to_integral(ROUND_CEILING)
    count = int((high - low) / step) + 1
    values = [(first + index) * step for index in range(count)]
    return _any([_spelled(value) for value in values if interval.holds(value)])


def _spelled(value: Decimal) -> str:
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return ("0" if text == "-0" else text).replace(".", r"\.")


def _negative(pattern: str | None) -> str | None:
    return None if pattern is None else f"-{pattern}"


def _any(ways: list[str | None]) -> str | None:
    alternatives = list(dict.fromkeys(way for way in ways if way is not None))
    return f"(?:{'|'.join(alternatives)})" if alternatives else None
