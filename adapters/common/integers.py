"""Patterns of integers between bounds, without leading zeros."""

from __future__ import annotations


def between(low: int, high: int) -> str:
    """The integers from `low` to `high`, both included, of which there is one; -0 is one where
    numbers on both sides of it are."""
    ways = []
    if low < 0:
        ways.append(f"-{naturals(max(0, -high), -low)}")
    if high >= 0:
        ways.append(naturals(max(low, 0), high))
    return "|".join(ways)


def naturals(low: int, high: int) -> str:
    """The same of integers that are not negative."""
    ways = []
    while low <= high:
        end = min(high, 10 ** len(str(low)) - 1)
        ways.append(_same_length(str(low), str(end)))
        low = end + 1
    return f"(?:{'|'.join(ways)})"


def _same_length(low: str, high: str) -> str:
    if not low:
        return ""
    if low[0] == high[0]:
        return low[0] + _same_length(low[1:], high[1:])
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    ways = []
    if int(low[1:] or 0):
        ways.append(low[0] + _same_length(low[1:], "9" * rest))
        first += 1
    if high[1:] != "9" * rest:
        ways.append(high[0] + _same_length("0" * rest, high[1:]))
        last -= 1
    if first <= last:
        digit = str(first) if first == last else f"[{first}-{last}]"
        ways.append(digit + (f"[0-9]{{{rest}}}" if rest else ""))
    return f"(?:{'|'.join(ways)})"
