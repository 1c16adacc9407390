"""An automaton as an expression without automata, by elimination of its states.

Each state is replaced by the ways through it, the one with the fewest first.
"""

from __future__ import annotations

from ...regex.chars import union
from ...regex.errors import UnsupportedSchema
from .strings import Chars, Either, Machine, Repeat, Row, Texts

MAX_NODES = 4_000
MAX_DEPTH = 60
START, END = -1, -2


def without_machines(texts: Texts) -> Texts:
    """The same texts without automata. Raises UnsupportedSchema where that would be too large."""
    match texts:
        case Machine():
            return _Eliminator(texts).run()
        case Row(items):
            return Row(tuple(map(without_machines, items)))
        case Either(options):
            return Either(tuple(map(without_machines, options)))
        case Repeat(item, low, high):
            return Repeat(without_machines(item), low, high)
    return texts


class _Eliminator:
    """ways: from each state to each other one, the texts that lead there. sizes: of these, how many
    nodes they have and how deep they are."""

    def __init__(self, machine: Machine) -> None:
        self.ways: dict[int, dict[int, Texts]] = {START: {0: Row()}}
        self.back: dict[int, set[int]] = {0: {START}, END: set()}
        for state, row in enumerate(machine.rows):
            self.ways[state] = {to: Chars(ranges) for ranges, to in row}
            if machine.accepting[state]:
                self.ways[state][END] = Row()
            for to in self.ways[state]:
                self.back.setdefault(to, set()).add(state)

    def run(self) -> Texts:
        """The texts from the start to the end."""
        left = set(self.ways) - {START}
        while left:
            state = min(left, key=self._cost)
            left.discard(state)
            self._eliminate(state)
        return self.ways[START][END]

    def _cost(self, state: int) -> tuple[int, int]:
        num_sources = len(self.back.get(state, set()) - {state})
        num_targets = len(self.ways[state].keys() - {state})
        return (num_sources - 1) * (num_targets - 1), -state

    def _eliminate(self, state: int) -> None:
        row = self.ways.pop(state)
        loop = row.pop(state, None)
        sources = self.back.pop(state, set()) - {state}
        through = () if loop is None else (Repeat(loop, 0, None),)
        for to in row:
            self.back[to].discard(state)
        for source in sources:
            first = self.ways[source].pop(state)
            for to, last in row.items():
                way = _row(first, *through, last)
                known = self.ways[source].get(to)
                found = way if known is None else _either(known, way)
                size, depth = _size(found)
                if size > MAX_NODES or depth > MAX_DEPTH:
                    raise UnsupportedSchema("patterns that are short without lookaround inside")
                self.ways[source][to] = found
                self.back[to].add(source)


def _row(*parts: Texts) -> Texts:
    merged: list[Texts] = []
    for part in parts:
        for item in part.items if isinstance(part, Row) else (part,):
            is_star = isinstance(item, Repeat) and (item.low, item.high) == (0, None)
            if is_star and merged and isinstance(item, Repeat) and item.item == merged[-1]:
                merged[-1] = Repeat(item.item, 1, None)
            else:
                merged.append(item)
    return merged[0] if len(merged) == 1 else Row(tuple(merged))


def _either(one: Texts, other: Texts) -> Texts:
    options = list(dict.fromkeys((*_options(one), *_options(other))))
    sets = [option for option in options if isinstance(option, Chars)]
    if len(sets) > 1:
        merged = Chars(union(pair for it in sets for pair in it.ranges))
        options = [merged, *(it for it in options if not isinstance(it, Chars))]
    rest = [it for it in options if it != Row()]
    if not rest:
        return Row()
    item = rest[0] if len(rest) == 1 else Either(tuple(rest))
    if len(rest) == len(options):
        return item
    is_plus = isinstance(item, Repeat) and (item.low, item.high) == (1, None)
    return (
        Repeat(item.item, 0, None) if is_plus and isinstance(item, Repeat) else Repeat(item, 0, 1)
    )


def _options(texts: Texts) -> tuple[Texts, ...]:
    match texts:
        case Either(options):
            return options
        case Repeat(item, 0, 1):
            return (*_options(item), Row())
    return (texts,)


def _size(texts: Texts) -> tuple[int, int]:
    """How many nodes there are, and how deep they are."""
    match texts:
        case Row(items) | Either(items):
            sizes = [_size(item) for item in items]
            return 1 + sum(size for size, _ in sizes), 1 + max((d for _, d in sizes), default=0)
        case Repeat(item):
            size, depth = _size(item)
            return 1 + size, 1 + depth
    return 1, 1
