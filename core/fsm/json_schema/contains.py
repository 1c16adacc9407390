"""Arrays of which some items must meet a schema: `contains`, minContains and maxContains.

Without limits on the length, every such array can be written. With them, the items that must meet
the schema are looked for among the first ones. Knows nothing of how a value is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ..regex.errors import UnsupportedSchema
from .facts import All, Arrays, Contains, distinct
from .patterns.strings import repeated

Write: TypeAlias = Callable[[All], str | None]
MAX_PLACES = 16


def free_pattern(arrays: Arrays, write: Write, comma: str) -> str | None:
    """The pattern of what is between the brackets, where the length is not limited and all items
    are alike; None: there is no such array.

    write: the pattern of a value that meets all of some nodes; None where there is none.
    """
    ((nodes, low, high),) = arrays.contains
    rest = arrays.rest or ()
    one = write(distinct((*rest, *nodes)))
    other = write(rest if high is None else _others(rest, nodes))
    before = "" if other is None else repeated(other + comma, 0, None)
    after = "" if other is None else repeated(comma + other, 0, None)
    without = None if low else "" if other is None else f"(?:{other}{after})?"
    if one is None or high == 0:
        return without
    if high is None:
        return before + one + repeated(f"{comma}{before}{one}", low - 1, low - 1) + after
    more = repeated(f"{comma}{one}{after}", max(low - 1, 0), high - 1)
    found = f"{before}{one}{after}{more}"
    return found if without is None else f"(?:{found}|{without})"


def is_free(arrays: Arrays) -> bool:
    """Whether `free_pattern` can write these."""
    if len(arrays.contains) != 1 or arrays.prefix or arrays.is_unique or arrays.rest is None:
        return False
    _, low, high = arrays.contains[0]
    return arrays.high is None and arrays.low <= low and (low > 0 or high is not None)


def without_contains(arrays: Arrays) -> list[Arrays]:
    """Arrays that these facts allow, by the indices of items that meet `contains`."""
    limited = [part for part in arrays.contains if part.low or part.high is not None]
    bare = replace(arrays, contains=())
    if not limited:
        return [bare]
    if len(limited) == 1 and limited[0].low == 1 and limited[0].high is None:
        most = len(arrays.prefix) if arrays.rest is None else MAX_PLACES
        most = most if arrays.high is None else min(most, arrays.high)
        return [_at(bare, i, limited[0].nodes) for i in range(most)]
    if len(limited) == 1 and limited[0].high is None:
        starts = [] if arrays.rest is None else range(1, len(arrays.prefix) + 1)
        return [_leading(bare, limited[0], start) for start in (0, *starts)]
    if len(limited) == 1:
        return [_leading(bare, limited[0])]
    if any(part.high is not None for part in limited):
        raise UnsupportedSchema("one `contains`, or several without maxContains")
    start = 0
    for part in limited:
        for i in range(start, start + part.low):
            bare = _at(bare, i, part.nodes)
        start += part.low
    return [bare]


def _leading(arrays: Arrays, part: Contains, start: int = 0) -> Arrays:
    """The first items, from `start` on, meet what is contained, and none of the others where there
    is a limit (and `start` is zero)."""
    for i in range(start, start + part.low):
        arrays = _at(arrays, i, part.nodes)
    if part.high is None:
        return arrays
    tail = [_others(nodes, part.nodes) for nodes in arrays.prefix[part.low :]]
    rest = None if arrays.rest is None else _others(arrays.rest, part.nodes)
    return replace(arrays, prefix=(*arrays.prefix[: part.low], *tail), rest=rest)


def _at(arrays: Arrays, i: int, nodes: All) -> Arrays:
    """The arrays whose item `i` meets these nodes too."""
    if i >= len(arrays.prefix) and arrays.rest is None:
        raise UnsupportedSchema("as many items in prefixItems as `contains` needs")
    prefix = [arrays.item(k) for k in range(max(len(arrays.prefix), i + 1))]
    prefix[i] = distinct((*prefix[i], *nodes))
    return replace(arrays, prefix=tuple(prefix), low=max(arrays.low, i + 1))


def _others(rest: All, nodes: All) -> All:
    """Items that do not meet what is contained."""
    if len(nodes) != 1:
        raise UnsupportedSchema("maxContains of one schema")
    return distinct((*rest, nodes[0].negated()))
