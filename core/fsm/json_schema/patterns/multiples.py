"""Patterns of numbers that are multiples of something, or of nothing that is excluded.

Readers divide doubles and look whether the quotient is whole: 19.99 / 0.01 is not. So a number is
written only where that test and exact arithmetic agree. Multiples near zero are listed; further
away those follow whose doubles are exact. Knows nothing of schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain, count, takewhile
from math import floor, lcm

from ...regex.errors import UnsupportedSchema
from .intervals import Interval
from .numbers import LARGEST, NUM_DIGITS, NUM_EXACT, both_signs, integers, number_pattern
from .spelling import alternatives
from .strings import repeated

MAX_LISTED = 1_000
MAX_FRACTIONS = 4_000
MAX_BLOCK = 4  # digits of a block of multiples
MAX_DECIMALS = 15
MAX_POWER = 3
NUM_WHOLE = 6  # digits before the point of a number that is no multiple of a fraction


def multiple_pattern(interval: Interval, multiple: Fraction) -> str | None:
    """The numbers of an interval that are multiples; None: there are none."""
    if multiple == 1 and interval.low is None and interval.high is None:
        return f"(?:0|-?[1-9][0-9]{{0,{NUM_DIGITS - 1}}})"
    if multiple.denominator == 1:
        return both_signs(interval, lambda part: _whole(part, int(multiple)))
    return both_signs(interval, lambda part: _fractions(part, multiple))


def other_numbers(
    kind: str, interval: Interval, multiple: Fraction | None, unlike: Sequence[Fraction]
) -> str | None:
    """Numbers of an interval that are multiples of none in `unlike`; None: there are none."""
    whole = both_signs(interval, lambda part: _other_integers(part, multiple, unlike))
    if kind == "integer":
        return whole
    if multiple is not None:
        raise UnsupportedSchema(
            "multipleOf beside one that `not` or `oneOf` excludes for integers only"
        )
    parts = [whole, both_signs(interval, lambda part: _uneven(part, unlike))]
    if interval.low is not None and interval.high is not None:
        is_narrow = floor(interval.low) == floor(interval.high) and min(unlike) >= 1
        if is_narrow and interval.integers()[0] != floor(interval.low):
            parts = [number_pattern(interval)]
    found = [part for part in parts if part is not None]
    return alternatives(found) if found else None


def _range(interval: Interval) -> tuple[int, int]:
    low, high = interval.integers()
    if (low or 0) > LARGEST:
        raise UnsupportedSchema(f"integers of at most {NUM_DIGITS} digits")
    return max(low or 0, 0), LARGEST if high is None else min(high, LARGEST)


def _whole(interval: Interval, multiple: int) -> list[str]:
    """The integers of an interval from zero on that are multiples; where there are too many, those
    near its start, and those that are made of blocks of digits that are multiples."""
    low, high = _range(interval)
    if low > high:
        return []
    if multiple == 1:
        return integers(low, high)
    return _periodic(low, high, multiple, [0])


def _periodic(low: int, high: int, period: int, residues: Sequence[int]) -> list[str]:
    """The integers in a range that leave one of these when they are divided by the period."""
    numbers = (base + r for base in count(low - low % period, period) for r in residues)
    near = takewhile(lambda number: number <= high, (n for n in numbers if n >= low))
    listed = [number for _, number in zip(range(MAX_LISTED + 1), near, strict=False)]
    if len(listed) <= MAX_LISTED:
        return [str(number) for number in listed]
    power = next((10**i for i in range(1, MAX_POWER + 1) if 10**i % period == 0), None)
    if power is not None:
        return _tails(low, high, power, [t for t in range(power) if t % period in residues])
    listed.pop()
    return [digit_trie(map(str, listed)), *_blocks(listed[-1], high, period, residues)]


def _tails(low: int, high: int, power: int, tails: Sequence[int]) -> list[str]:
    """The integers in a range whose last digits are one of these."""
    width = len(str(power)) - 1
    start, end = max(1, -(-low // power)), (high + 1) // power
    edges = [
        n
        for n in chain(
            range(low, min(start * power, high + 1)), range(max(end, start) * power, high + 1)
        )
        if n % power in tails
    ]
    heads = alternatives(integers(start, end - 1)) if start < end else None
    last = digit_trie(f"{tail:0{width}}" for tail in tails)
    return [*map(str, edges), *([f"{heads}{last}"] if heads else [])]


def _blocks(low: int, high: int, period: int, residues: Sequence[int]) -> list[str]:
    """Integers above `low` with fewer digits than `high`, by blocks of digits."""
    width = len(str(period))
    if width > MAX_BLOCK:
        return []
    start, end = len(str(low)), len(str(high)) - 1
    least, most = -(-start // width), (end - width) // width
    if least > most:
        return []
    first = digit_trie(str(n) for n in range(10 ** (width - 1), 10**width) if n % period == 0)
    block = digit_trie(f"{n:0{width}}" for n in range(0, 10**width, period))
    last = digit_trie(f"{n:0{width}}" for n in range(10**width) if n % period in residues)
    return [first + repeated(block, least - 1, most - 1) + last]


def _fractions(interval: Interval, multiple: Fraction) -> list[str]:
    """The multiples of a fraction in an interval from zero on: those near its start, and those
    further away whose doubles are exact."""
    decimals = _decimals(multiple)
    low = Fraction(interval.low or 0)
    first = -(-low // multiple)
    listed: list[str] = []
    value = Fraction(0)
    for step in range(MAX_FRACTIONS):
        value = (first + step) * multiple
        if value > min(LARGEST, Fraction(LARGEST if interval.high is None else interval.high)):
            return [digit_trie(listed)] if listed else []
        number = Decimal(int(value * 10**decimals)).scaleb(-decimals)
        if interval.holds(number) and (float(value) / float(multiple)).is_integer():
            listed += _spellings(value, decimals)
    far = _far_fractions(int(value) + 1, interval, multiple, decimals)
    return [*([digit_trie(listed)] if listed else []), *far]


def _far_fractions(start: int, interval: Interval, multiple: Fraction, decimals: int) -> list[str]:
    """Multiples from `start` on whose quotients are found exactly."""
    error = abs(Fraction(float(multiple)) / multiple - 1)
    if error >= Fraction(1, 2**54):
        return []
    end = min(_range(interval)[1], 10 ** len(str(int(2**50 * multiple))) // 10 - 1)
    common = lcm(multiple.numerator, multiple.denominator) // multiple.denominator
    if start > end:
        return []
    if common != 1:
        return _periodic(start, end, common, [0])
    parts = [Fraction(k, 10**decimals) for k in range(1, 10 ** min(decimals, 4))]
    exact = [
        part
        for part in parts
        if part % multiple == 0 and not part.denominator & (part.denominator - 1)
    ]
    texts = [text[1:] for part in exact for text in _spellings(part, decimals)]
    heads = alternatives(integers(start, end - 1)) if start < end else str(start)
    return [heads + (f"(?:{digit_trie(texts)})?" if texts else "")]


def _other_integers(
    interval: Interval, multiple: Fraction | None, unlike: Sequence[Fraction]
) -> list[str]:
    """Integers of an interval from zero on that are multiples of none of these."""
    low, high = _range(interval)
    wanted = 1 if multiple is None else multiple.numerator
    excluded = [lcm(u.numerator, u.denominator) // u.denominator for u in unlike]
    period = lcm(wanted, *excluded)
    if low > high or any(wanted % number == 0 for number in excluded):
        return []
    if period > MAX_LISTED:
        raise UnsupportedSchema(f"numbers that are no multiples of at most {MAX_LISTED}")
    residues = [r for r in range(0, period, wanted) if all(r % number for number in excluded)]
    return _periodic(low, high, period, residues) if residues else []


def _uneven(interval: Interval, unlike: Sequence[Fraction]) -> list[str]:
    """Numbers with more decimals than any multiple has, between two integers of an interval."""
    decimals = max(map(_decimals, unlike))
    low, high = _range(interval)
    is_whole = all(u.denominator == 1 for u in unlike)
    high = min(high, 10 ** (NUM_EXACT - 3 if is_whole else NUM_WHOLE)) - 1
    if interval.low is not None and Fraction(low) < Fraction(interval.low):
        low += 1
    if low > high or decimals > MAX_DECIMALS - NUM_WHOLE:
        return []
    return [rf"{alternatives(integers(low, high))}\.[0-9]{{{decimals},{decimals + 2}}}[1-9]"]


def _decimals(number: Fraction) -> int:
    """Digits behind the point of a decimal fraction."""
    found = next((i for i in range(MAX_DECIMALS + 1) if (number * 10**i).denominator == 1), None)
    if found is None:
        raise UnsupportedSchema(f"multipleOf with at most {MAX_DECIMALS} decimals")
    return found


def _spellings(value: Fraction, decimals: int) -> Iterator[str]:
    """A number with as few decimals as it needs, and with up to so many."""
    whole, part = divmod(int(value * 10**decimals), 10**decimals)
    digits = f"{part:0{decimals}}".rstrip("0")
    if not digits:
        yield str(whole)
    for size in range(max(len(digits), 1), decimals + 1):
        yield f"{whole}.{digits:0<{size}}"


def digit_trie(texts: Iterable[str]) -> str:
    """A pattern of these texts of digits, points and signs, as short as their tree."""
    tree: dict[str, dict] = {}  # type: ignore[type-arg]
    for text in texts:
        node = tree
        for char in (*text, ""):
            node = node.setdefault(char, {})
    return _branches(tree)


def _branches(tree: dict[str, dict]) -> str:  # type: ignore[type-arg]
    by_tail: dict[str, str] = {}
    for char, below in tree.items():
        if char:
            tail = _branches(below)
            by_tail[tail] = by_tail.get(tail, "") + char
    options = [_class(chars) + tail for tail, chars in by_tail.items()]
    if not options:
        return ""
    if "" in tree:
        return f"(?:{'|'.join(options)})?"
    return alternatives(options)


def _class(chars: str) -> str:
    escaped = [f"\\{char}" if char in ".-" else char for char in chars]
    return escaped[0] if len(escaped) == 1 else f"[{''.join(escaped)}]"
