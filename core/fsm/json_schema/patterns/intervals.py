"""Intervals of numbers, exact in decimals. Knows nothing of schemas or patterns."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from `low` to `high`, each left out where it is open; None: no bound."""

    low: Decimal | None = None
    high: Decimal | None = None
    is_low_open: bool = False
    is_high_open: bool = False

    def intersect(self, other: Interval) -> Interval:
        """The numbers that lie in both."""
        lows = [(i.low, i.is_low_open) for i in (self, other) if i.low is not None]
        highs = [(i.high, i.is_high_open) for i in (self, other) if i.high is not None]
        low, low_open = max(lows, default=(None, False))
        high, high_open = min(
            highs, key=lambda bound: (bound[0], not bound[1]), default=(None, False)
        )
        return Interval(low, high, low_open, high_open)

    def mirrored(self) -> Interval:
        """The negated numbers."""
        low = None if self.high is None else self.high.copy_negate()
        high = None if self.low is None else self.low.copy_negate()
        return Interval(low, high, self.is_high_open, self.is_low_open)

    def holds(self, number: Decimal) -> bool:
        """Whether the number lies in it."""
        low, high = self.low, self.high
        is_above = low is None or number > low or (number == low and not self.is_low_open)
        is_below = high is None or number < high or (number == high and not self.is_high_open)
        return is_above and is_below

    def is_empty(self) -> bool:
        """Whether no number lies in it."""
        if self.low is None or self.high is None:
            return False
        is_point = self.low == self.high
        return self.low > self.high or (is_point and (self.is_low_open or self.is_high_open))

    def integers(self) -> tuple[int | None, int | None]:
        """The least and the largest integer in it, None where there is no bound."""
        low = high = None
        if self.low is not None:
            low = int(self.low.to_integral_value(ROUND_CEILING))
            low += self.is_low_open and low == self.low
        if self.high is not None:
            high = int(self.high.to_integral_value(ROUND_FLOOR))
            high -= self.is_high_open and high == self.high
        return low, high
