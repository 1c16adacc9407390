"""Automata as sets of texts: their lengths, those of some length, and their texts as expressions.

Knows nothing of how an automaton is found.
"""

from __future__ import annotations

from ...regex.chars import union
from ...regex.errors import UnsupportedSchema
from ...regex.tree import Alt, Loop, Net, Seq, Set, Tree, parts, with_parts

MAX_STATES = 10_000
MAX_NODES = 4_000
MAX_DEPTH = 60
START, END = -1, -2


def least_length(net: Net) -> int:
    """The least number of characters that is accepted."""
    seen, here, length = {0}, [0], 0
    while here and not any(net.accepting[state] for state in here):
        here = [to for state in here for _, to in net.rows[state] if to not in seen]
        seen.update(here)
        length += 1
    return length


def largest_length(net: Net) -> int | None:
    """The largest number of characters that is accepted; None: there is no limit."""
    longest, is_open = dict[int, int](), set[int]()
    stack = [(0, False)]
    while stack:
        state, is_done = stack.pop()
        if is_done:
            is_open.discard(state)
            longest[state] = max((1 + longest[to] for _, to in net.rows[state]), default=0)
        elif state not in longest:
            is_open.add(state)
            stack.append((state, True))
            for _, to in net.rows[state]:
                if to in is_open:
                    return None
                stack.append((to, False))
    return longest[0]


def num_texts(net: Net, most: int) -> int | None:
    """How many texts are accepted; None: more than `most`."""
    if largest_length(net) is None:
        return None
    here, found = {0: 1}, 0
    while here:
        found += sum(count for state, count in here.items() if net.accepting[state])
        if max(found, sum(here.values())) > most:
            return None
        after: dict[int, int] = {}
        for state, count in here.items():
            for item, to in net.rows[state]:
                after[to] = after.get(to, 0) + count * _num_chars(item)
        here = after
    return found


def _num_chars(item: Tree) -> int:
    assert isinstance(item, Set)
    return sum(end - start for start, end in item.ranges)


def of_lengths(net: Net, low: int, high: int | None) -> Net | None:
    """The automaton of the texts of `low` to `high` characters; None: there are none. Raises
    UnsupportedSchema where it is too large."""
    last = low if high is None else high
    states, queue = {(0, 0): 0}, [(0, 0)]
    found: list[list[tuple[Tree, int]]] = []
    for state, length in queue:  # grows
        row: list[tuple[Tree, int]] = []
        for item, to in net.rows[state] if high is None or length < high else ():
            key = (to, min(length + 1, last))
            if key not in states:
                states[key] = len(queue)
                queue.append(key)
            row.append((item, states[key]))
        if len(queue) > MAX_STATES:
            raise UnsupportedSchema(
                f"a length beside a pattern whose automaton has {MAX_STATES} states"
            )
        found.append(row)
    ends = [net.accepting[state] and length >= low for state, length in queue]
    return _live(found, ends)


def _live(rows: list[list[tuple[Tree, int]]], accepting: list[bool]) -> Net | None:
    """The same without states from which nothing is accepted; None: it accepts nothing."""
    before: dict[int, list[int]] = {}
    for state, row in enumerate(rows):
        for _, to in row:
            before.setdefault(to, []).append(state)
    todo = [state for state, accepts in enumerate(accepting) if accepts]
    live = set(todo)
    while todo:
        fresh = [state for state in before.get(todo.pop(), ()) if state not in live]
        live.update(fresh)
        todo += fresh
    if 0 not in live:
        return None
    number = {state: i for i, state in enumerate(sorted(live))}
    kept = tuple(
        tuple((item, number[to]) for item, to in rows[state] if to in live)
        for state in sorted(live)
    )
    return Net(kept, tuple(accepting[state] for state in sorted(live)))


def without_machines(texts: Tree) -> Tree:
    """The same texts without automata. Raises UnsupportedSchema where that would be too large."""
    if isinstance(texts, Net):
        return _Eliminator(texts).run()
    return with_parts(texts, map(without_machines, parts(texts)))


class _Eliminator:
    """Replaces each state by the ways through it, the one with the fewest first.

    ways: from each state to each other one, the texts that lead there.
    """

    def __init__(self, machine: Net) -> None:
        self.ways: dict[int, dict[int, Tree]] = {START: {0: Seq()}}
        self.back: dict[int, set[int]] = {0: {START}, END: set()}
        for state, row in enumerate(machine.rows):
            self.ways[state] = {to: item for item, to in row}
            if machine.accepting[state]:
                self.ways[state][END] = Seq()
            for to in self.ways[state]:
                self.back.setdefault(to, set()).add(state)

    def run(self) -> Tree:
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
        through = () if loop is None else (Loop(loop, 0, None),)
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


def _row(*parts: Tree) -> Tree:
    merged: list[Tree] = []
    for part in parts:
        for item in part.items if isinstance(part, Seq) else (part,):
            is_star = isinstance(item, Loop) and (item.low, item.high) == (0, None)
            if is_star and merged and isinstance(item, Loop) and item.item == merged[-1]:
                merged[-1] = Loop(item.item, 1, None)
            else:
                merged.append(item)
    return merged[0] if len(merged) == 1 else Seq(tuple(merged))


def _either(one: Tree, other: Tree) -> Tree:
    options = list(dict.fromkeys((*_options(one), *_options(other))))
    sets = [option for option in options if isinstance(option, Set)]
    if len(sets) > 1:
        merged = Set(union(pair for it in sets for pair in it.ranges))
        options = [merged, *(it for it in options if not isinstance(it, Set))]
    rest = [it for it in options if it != Seq()]
    if not rest:
        return Seq()
    item = rest[0] if len(rest) == 1 else Alt(tuple(rest))
    if len(rest) == len(options):
        return item
    is_plus = isinstance(item, Loop) and (item.low, item.high) == (1, None)
    return Loop(item.item, 0, None) if is_plus and isinstance(item, Loop) else Loop(item, 0, 1)


def _options(texts: Tree) -> tuple[Tree, ...]:
    match texts:
        case Alt(options=options):
            return options
        case Loop(item=item, low=0, high=1):
            return (*_options(item), Seq())
    return (texts,)


def _size(texts: Tree) -> tuple[int, int]:
    """How many nodes there are, and how deep they are."""
    match texts:
        case Seq(items=items) | Alt(options=items):
            sizes = [_size(item) for item in items]
            return 1 + sum(size for size, _ in sizes), 1 + max((d for _, d in sizes), default=0)
        case Loop(item=item):
            size, depth = _size(item)
            return 1 + size, 1 + depth
    return 1, 1
