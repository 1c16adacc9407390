"""Automata as sets of texts: their lengths, those of some length, and those that several accept.

Knows nothing of how an automaton is found.
"""

from __future__ import annotations

from ...regex.errors import UnsupportedSchema
from ...regex.tree import Net, Tree

MAX_STATES = 10_000


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
