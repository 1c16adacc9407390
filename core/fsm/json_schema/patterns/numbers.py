"""Patterns of the numbers that lie between two bounds. Knows nothing of schemas.

Every number fits in a double and can be read back: integers have at most 19 digits, free numbers a
two-digit exponent. Bounded numbers are written without one, and short enough that none of them
rounds to a bound that it must not touch. Functions on fractions take and describe the digits after
the point; they return alternatives, of which "" stands for no fraction, and allow `room` digits.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from ...regex.errors import UnsupportedSchema
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


def digit(first: int, last: int) -> str:
    """A pattern of one digit between two."""
    return str(first) if first == last else f"[{first}-{last}]"


def digits(fewest: int, most: int) -> str:
    """A pattern of so many digits."""
    if most <= 0:
        return ""
    count = (
        "" if fewest == most == 1 else f"{{{fewest}}}" if fewest == most else f"{{{fewest},{most}}}"
    )
    return f"[0-9]{count}"


def same_length(low: str, high: str) -> list[str]:
    """Patterns of digit strings between two of the same length."""
    i = next((i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b), len(low))
    if i == len(low):
        return [low]
    prefix, rest = low[:i], len(low) - i - 1
    takes_low = low[i + 1 :] == "0" * rest
    takes_high = high[i + 1 :] == "9" * rest
    options = [] if takes_low else [low[: i + 1] + tail for tail in _beyond(low[i + 1 :], True)]
    start = int(low[i]) + (not takes_low)
    end = int(high[i]) - (not takes_high)
    if start <= end:
        options.append(f"{prefix}{digit(start, end)}{digits(rest, rest)}")
    return options + (
        [] if takes_high else [high[: i + 1] + tail for tail in _beyond(high[i + 1 :], False)]
    )


def _beyond(bound: str, is_up: bool) -> list[str]:
    """Patterns of digit strings of the same length that are not below, or not above, a bound."""
    kept = bound.rstrip("0" if is_up else "9")
    num_free = len(bound) - len(kept)
    options = [kept + digits(num_free, num_free)]
    for i in reversed(range(len(kept))):
        first, last = (int(kept[i]) + 1, 9) if is_up else (0, int(kept[i]) - 1)
        if first <= last:
            rest = len(bound) - i - 1
            options.append(f"{kept[:i]}{digit(first, last)}{digits(rest, rest)}")
    return options


def any_fraction(room: int) -> list[str]:
    """Every fraction."""
    return ["", digits(1, room)]


def fractions_from(low: str, is_open: bool, room: int) -> list[str]:
    """Fractions that are not below `low` (nor equal to it, where it is open)."""
    low = low.rstrip("0")
    options = [
        f"{low[:i]}{digit(int(low[i]) + 1, 9)}{digits(0, room - i - 1)}"
        for i in range(min(len(low), room))
        if low[i] != "9"
    ]
    rest = room - len(low)
    if is_open:
        return options + [f"{low}{'0' * i}[1-9]{digits(0, rest - i - 1)}" for i in range(rest)]
    if not low:
        return any_fraction(room)
    return [*options, low + digits(0, rest)] if rest >= 0 else options


def fractions_to(high: str, is_open: bool, room: int) -> list[str]:
    """Fractions that are not above `high` (nor equal to it, where it is open)."""
    high = high.rstrip("0")
    options = [
        f"{high[:i]}{digit(0, int(high[i]) - 1)}{digits(0, room - i - 1)}"
        for i in range(min(len(high), room))
        if high[i] != "0"
    ]
    options += [high[:i] for i in range(min(len(high), room + 1))]
    return options if is_open or len(high) > room else options + equal_fractions(high, room)


def fractions_within(low: str, high: str, is_open: tuple[bool, bool], room: int) -> list[str]:
    """Fractions from `low` to `high`, the lower of which is below the other."""
    low, high = low.rstrip("0"), high.rstrip("0")
    padded = low.ljust(len(high), "0")
    i = next(i for i, (a, b) in enumerate(zip(padded, high, strict=False)) if a != b)
    is_prefix = len(low) <= min(i, room) and not is_open[0]
    options = equal_fractions(low, min(i, room)) if is_prefix else []
    rest = room - i - 1
    if rest < 0:
        return options
    first, last = int(padded[i]), int(high[i])
    options += [padded[: i + 1] + tail for tail in fractions_from(low[i + 1 :], is_open[0], rest)]
    if last - first > 1:
        options.append(f"{high[:i]}{digit(first + 1, last - 1)}{digits(0, rest)}")
    return options + [
        high[: i + 1] + tail for tail in fractions_to(high[i + 1 :], is_open[1], rest)
    ]


def equal_fractions(value: str, room: int) -> list[str]:
    """Ways to write one fraction, which has no zeros at its end: with none or some."""
    rest = room - len(value)
    return [value] if rest == 0 else [value, f"{value}0{{1,{rest}}}"]
