"""Patterns of digit strings between bounds: whole numbers of one length, and decimal fractions.

Knows nothing of numbers as such. The functions on fractions take and describe the digits after the
point; they return alternatives, of which "" stands for no fraction at all, and allow `room` digits.
"""

from __future__ import annotations


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
