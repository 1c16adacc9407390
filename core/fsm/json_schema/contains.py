"""Arrays of which some items must meet a schema: `contains`, minContains and maxContains.

Without limits on the length, every such array can be written. With them, the items that must meet
the schema are looked for among the first ones. Knows nothing of how a value is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import TypeAlias

from ..regex.errors import UnsupportedSchema
from .facts import All, Arrays, Contains, distinct
from .patterns.strings import repeated

Write: TypeAlias = Callable[[All], str | None]
IsPossible: TypeAlias = Callable[[All], bool]
MAX_PLACES = 16
MAX_ORDERED = 3  # parts of which every order is written
MAX_TRIED = 500


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


def without_contains(arrays: Arrays, is_possible: IsPossible) -> list[Arrays]:
    """Arrays that these facts allow, by the indices of items that meet `contains`.

    is_possible: whether some value may meet all of some nodes.
    """
    limited = [part for part in arrays.contains if part.low or part.high is not None]
    bare = replace(arrays, contains=())
    if not limited:
        return [bare]
    if len(limited) == 1 and limited[0].low == 1 and limited[0].high is None:
        most = len(arrays.prefix) if arrays.rest is None else MAX_PLACES
        most = most if arrays.high is None else min(most, arrays.high)
        return [_at(bare, (i,), limited[0].nodes) for i in range(most)]
    if len(limited) == 1 and limited[0].high is not None:
        return [_leading(bare, limited[0])]
    if any(part.high is not None for part in limited):
        raise UnsupportedSchema("one `contains`, or several without maxContains")
    if len(limited) == 1:
        starts = [] if arrays.rest is None else range(1, len(arrays.prefix) + 1)
        found = [_leading(bare, limited[0], start) for start in (0, *starts)]
        found = [option for option in found if _is_satisfiable(option, is_possible)]
        return found or _arranged(bare, limited, is_possible)
    return _arranged(bare, limited, is_possible)


def _is_satisfiable(arrays: Arrays, is_possible: IsPossible) -> bool:
    """Whether the items that are needed may be there, and no more of them than are allowed."""
    is_short = arrays.high is None or arrays.low <= arrays.high
    return is_short and all(is_possible(nodes) for nodes in arrays.prefix[: arrays.low])


def _arranged(arrays: Arrays, parts: list[Contains], is_possible: IsPossible) -> list[Arrays]:
    """The arrays by which items meet several parts: one for each order of the parts, where these
    are few, one by which items may meet several of them, and one with these behind the prefix."""
    orders = [*permutations(parts)] if len(parts) <= MAX_ORDERED else [parts]
    searches = [_Arrangement(arrays, order, is_possible, True) for order in orders]
    searches.append(_Arrangement(arrays, parts, is_possible, False))
    searches.append(_Arrangement(arrays, parts, is_possible, True, len(arrays.prefix)))
    found = dict[tuple[tuple[str, ...], ...], Arrays]()
    for search in searches:
        if (option := search.first(arrays, 0)) is not None:
            key = tuple(tuple(node.key for node in nodes) for nodes in option.prefix)
            found.setdefault(key, option)
    return [*found.values()]


class _Arrangement:
    """Looks for items that meet all of some parts, one part after the other.

    is_apart: whether no item may meet two of them. start: the index of the first that may meet one.
    """

    def __init__(
        self,
        arrays: Arrays,
        parts: Sequence[Contains],
        is_possible: IsPossible,
        is_apart: bool,
        start: int = 0,
    ) -> None:
        num_places = len(arrays.prefix)
        if arrays.rest is not None:
            num_places += sum(part.low for part in parts)
        num_places = num_places if arrays.high is None else min(num_places, arrays.high)
        self._indices = range(start, num_places)
        self._parts = parts
        self._is_possible = is_possible
        self._is_apart = is_apart
        self._num_tried = 0

    def first(self, arrays: Arrays, k: int, used: frozenset[int] = frozenset()) -> Arrays | None:
        """The first of the arrays that meet the parts from number `k` on; None: none was found."""
        if k == len(self._parts):
            return arrays if _is_satisfiable(arrays, self._is_possible) else None
        nodes, low, _ = self._parts[k]
        free = [i for i in self._indices if not (self._is_apart and i in used)]
        places = [i for i in free if self._is_possible(distinct((*arrays.item(i), *nodes)))]
        for chosen in combinations(places, low):
            self._num_tried += 1
            if self._num_tried > MAX_TRIED:
                return None
            smaller = _at(arrays, chosen, nodes)
            found = self.first(smaller, k + 1, used.union(chosen))
            if found is not None:
                return found
        return None


def _leading(arrays: Arrays, part: Contains, start: int = 0) -> Arrays:
    """The first items, from `start` on, meet what is contained, and none of the others where there
    is a limit (and `start` is zero)."""
    arrays = _at(arrays, range(start, start + part.low), part.nodes)
    if part.high is None:
        return arrays
    tail = [_others(nodes, part.nodes) for nodes in arrays.prefix[part.low :]]
    rest = None if arrays.rest is None else _others(arrays.rest, part.nodes)
    return replace(arrays, prefix=(*arrays.prefix[: part.low], *tail), rest=rest)


def _at(arrays: Arrays, indices: Sequence[int], nodes: All) -> Arrays:
    """The arrays whose items at these indices meet these nodes too."""
    prefix = list(arrays.prefix)
    for i in indices:
        if i >= len(prefix) and arrays.rest is None:
            raise UnsupportedSchema("as many items in prefixItems as `contains` needs")
        prefix += [arrays.rest or ()] * (i + 1 - len(prefix))
        prefix[i] = distinct((*prefix[i], *nodes))
    low = max(arrays.low, max(indices, default=-1) + 1)
    return replace(arrays, prefix=tuple(prefix), low=low)


def _others(rest: All, nodes: All) -> All:
    """Items that do not meet what is contained."""
    if len(nodes) != 1:
        raise UnsupportedSchema("maxContains of one schema")
    return distinct((*rest, nodes[0].negated()))
