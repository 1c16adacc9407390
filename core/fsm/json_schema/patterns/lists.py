"""Patterns of lists between brackets: which entries may be left out, and where the commas go.

Knows nothing of schemas. Optional entries keep their order; the pattern of n of them, where none is
required, repeats each about log n times, for a comma follows only what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from .spelling import alternatives
from .strings import repeated


class Layout(NamedTuple):
    """The separators between two items, and between a key and its value."""

    comma: str
    colon: str


class Entry(NamedTuple):
    """A pattern that stands `low` to `high` times in a row; None: without end."""

    pattern: str
    low: int = 0
    high: int | None = 1


def enclosed(brackets: str, entries: Sequence[Entry], comma: str, needs_one: bool = False) -> str:
    """A list of these entries; with `needs_one` it is not empty."""
    start, end = "\\" + brackets[0], "\\" + brackets[1]
    if not entries:
        return start + end
    body = joined(entries, comma)
    if not needs_one and not any(entry.low for entry in entries):
        body = f"(?:{body})?"
    return start + body + end


def joined(entries: Sequence[Entry], comma: str) -> str:
    """At least one of the entries, in their order, with commas between."""
    first = next((i for i, entry in enumerate(entries) if entry.low), None)
    if first is None:
        return _some(entries, comma)
    before = "".join(repeated(entry.pattern + comma, 0, entry.high) for entry in entries[:first])
    return before + _leading(entries[first], comma) + _following(entries[first + 1 :], comma)


def nested(items: Sequence[str], num_required: int, rest: Entry | None, comma: str) -> str:
    """A row of different items, of which the last may be left out, then the rest; "" if empty."""
    tail = "" if rest is None else _following([rest], comma)
    for i in reversed(range(len(items))):
        tail = f"{comma if i else ''}{items[i]}{tail}"
        tail = tail if i < num_required else f"(?:{tail})?"
    return tail


class Count(NamedTuple):
    """How many things a list has; None: no limit."""

    low: int
    high: int | None

    def after(self, number: int) -> Count:
        """How many more there are behind so many."""
        high = None if self.high is None else self.high - number
        return Count(max(self.low - number, 0), high)


def counted(
    entries: Sequence[Entry],
    rest: Entry | None,
    count: Count,
    comma: str,
    share: Callable[[str], str],
) -> str | None:
    """What is between the brackets of a list of so many things: these entries, in their order, of
    which those not required may be left out, then others of a kind. None: there is no such list.

    rest: the others, any number up to a most; None: there are none. share: a pattern as it is to be
    written where several patterns hold it.
    """
    most = max(count.low, 1) if count.high is None else count.high
    after = [_others(rest, count, number, comma) for number in range(most + 1)]
    for entry in reversed(entries):
        found: list[str | None] = []
        for number in range(most + 1):
            is_room = count.high is None or number < count.high
            tail = after[min(number + 1, most)] if is_room else None
            present = None if tail is None else (comma if number else "") + entry.pattern + tail
            found.append(_either(present, None if entry.low else after[number], share))
        after = found
    return after[0]


def _others(rest: Entry | None, count: Count, number: int, comma: str) -> str | None:
    """So many others behind a number of entries."""
    low, high = count.after(number)
    if rest is None or high == 0:
        return None if low else ""
    if rest.high is not None:
        high = rest.high if high is None else min(high, rest.high)
        if low > high:
            return None
    if number:
        return repeated(comma + rest.pattern, low, high)
    body = _leading(Entry(rest.pattern, low, high), comma)
    return body if low else f"(?:{body})?"


def _either(one: str | None, other: str | None, share: Callable[[str], str]) -> str | None:
    if one is None:
        return other
    if other is None:
        return share(one)
    return share(alternatives([one, other]) if other else f"(?:{one})?")


def _some(entries: Sequence[Entry], comma: str) -> str:
    """At least one of entries that may be left out: of the first half, or else of the other."""
    if len(entries) == 1:
        return _leading(entries[0], comma)
    weights = list(accumulate(len(entry.pattern) for entry in entries))
    half = next(i for i, weight in enumerate(weights, 1) if 2 * weight >= weights[-1])
    half = min(half, len(entries) - 1)
    left, right = entries[:half], entries[half:]
    return alternatives([_some(left, comma) + _following(right, comma), _some(right, comma)])


def _leading(entry: Entry, comma: str) -> str:
    """The entry at least once, with commas between."""
    high = None if entry.high is None else entry.high - 1
    more = "" if high == 0 else repeated(comma + entry.pattern, max(entry.low - 1, 0), high)
    return entry.pattern + more


def _following(entries: Sequence[Entry], comma: str) -> str:
    """Entries that may all be left out but those required, each after a comma."""
    return "".join(repeated(comma + entry.pattern, entry.low, entry.high) for entry in entries)
