"""A pattern's parse tree as an automaton that may be in many places at once, and back to one.

Knows nothing of bytes: its alphabet are classes of characters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from .chars import Ranges
from .limits import Meter
from .tree import Alt, Lookaround, Loop, Net, Seq, Set, Tree

Row: TypeAlias = dict[int, int]
_CHECK_EVERY = 4096


class Guard(NamedTuple):
    """What must hold at a place before it leads on to `to`: lookaround, by its number among those
    ahead or those behind."""

    number: int
    is_ahead: bool
    is_wanted: bool
    to: int


class Nfa:
    """Places, built from the end of the pattern to its start.

    kinds, targets: [places] by a character of which set each leads on, and where; -1 by none.
    empty: [places] for each, where it leads without a character.
    guards: places that lead on under a condition.
    aheads: where each lookahead begins; all of them end at `met`. behinds: where each lookbehind
      begins and ends, inner ones first.
    """

    def __init__(self) -> None:
        self.kinds, self.targets = [-1, -1], [-1, -1]  # no object for each: they may be millions
        self.empty: list[tuple[int, ...]] = [(), ()]
        self.end, self.met = 0, 1
        self.guards: dict[int, Guard] = {}
        self.aheads: list[int] = []
        self.behinds: list[tuple[int, int]] = []

    def arc(self, kind: int, to: int) -> int:
        """A new place from which a character of set `kind` leads to `to`."""
        self.kinds.append(kind)
        self.targets.append(to)
        self.empty.append(())
        return len(self.kinds) - 1

    def fork(self, *to: int) -> int:
        """A new place that is in all of these at once."""
        self.kinds.append(-1)
        self.targets.append(-1)
        self.empty.append(to)
        return len(self.kinds) - 1


class Builder:
    """Writes a parse tree without backreferences into an `Nfa`.

    kind_of: gives each set of characters a number.
    """

    def __init__(self, kind_of: Callable[[Ranges], int], meter: Meter) -> None:
        self.nfa = Nfa()
        self._kind_of = kind_of
        self._meter = meter

    def build(self, tree: Tree) -> int:
        """The place where the tree begins, once it is written. Raises InvalidCall."""
        cap = self._meter.limits.positions
        self._meter.check_limit(self._size(tree), cap, "positions once counts are written out")
        return self._write(tree, self.nfa.end)

    def _size(self, node: Tree) -> int:
        match node:
            case Seq(items=nodes) | Alt(options=nodes):
                return 1 + sum(map(self._size, nodes))
            case Loop(item=item, low=low, high=high):
                return 1 + self._size(item) * int(max(low + (high is None), high or 0, 1))
            case Lookaround(item=item):
                return 1 + self._size(item)
            case Net(rows=rows):
                return sum(2 + sum(self._size(item) for item, _ in row) for row in rows)
        return 1

    def _write(self, node: Tree, end: int) -> int:
        """The place from which the node leads to `end`."""
        match node:
            case Set(ranges=ranges):
                return self.nfa.arc(self._kind_of(ranges), end)
            case Alt(options=options):
                starts = [self._write(option, end) for option in options]
                return starts[0] if len(starts) == 1 else self.nfa.fork(*starts)
            case Seq(items=items):
                for item in reversed(items):
                    end = self._write(item, end)
                return end
            case Loop(item=item, low=low, high=high):
                return self._repeat(item, low, high, end)
            case Lookaround():
                return self._guard(node, end)
            case Net():
                return self._net(node, end)
        raise AssertionError("backreferences are expanded before a tree is built")

    def _repeat(self, base: Tree, low: int, high: int | None, end: int) -> int:
        nfa_state = end
        if high is None:
            nfa_state = self.nfa.fork(end)
            self.nfa.empty[nfa_state] += (self._write(base, nfa_state),)
        for _ in range((high or low) - low):
            nfa_state = self.nfa.fork(self._write(base, nfa_state), end)
        for index in range(low):
            nfa_state = self._write(base, nfa_state)
            if index % _CHECK_EVERY == 0:
                self._meter.check_time()
        return nfa_state

    def _net(self, net: Net, end: int) -> int:
        nfa_states = [self.nfa.fork() for _ in net.rows]
        for nfa_state, row, accepts in zip(nfa_states, net.rows, net.accepting, strict=True):
            arcs = [self._write(item, nfa_states[to]) for item, to in row]
            self.nfa.empty[nfa_state] = (*arcs, end) if accepts else tuple(arcs)
        return nfa_states[0]

    def _guard(self, look: Lookaround, end: int) -> int:
        nfa = self.nfa
        if look.is_ahead:
            nfa.aheads.append(self._write(look.item, nfa.met))
        else:
            last = nfa.fork()
            nfa.behinds.append((self._write(look.item, last), last))
        number = len(nfa.aheads if look.is_ahead else nfa.behinds) - 1
        nfa_state = nfa.fork()
        nfa.guards[nfa_state] = Guard(number, look.is_ahead, look.is_wanted, end)
        return nfa_state


class Subsets:
    """Determinizes an automaton: one state for each combination of places that can be occupied at
    once. members: for each set the classes that it is made of."""

    def __init__(self, nfa: Nfa, members: list[list[int]], meter: Meter) -> None:
        self.nfa = nfa
        self.members = members
        self.meter = meter
        self.closures: dict[int, frozenset[int]] = {}
        self.states: dict[frozenset[int], int] = {frozenset(): 0}
        self.queue: list[frozenset[int]] = [frozenset()]
        self.after: dict[tuple[int, ...], int] = {}
        self.work = self.check_at = 0

    def run(self, start: int) -> tuple[list[Row], list[bool]]:
        """Rows (class -> state, ascending classes) and which states accept. State 0 is dead, 1 is
        where it starts. Raises InvalidCall."""
        self._state((start,))
        rows = [self._row(nfa_states) for nfa_states in self.queue]  # grows while it is walked
        return rows, [self.nfa.end in nfa_states for nfa_states in self.queue]

    def _row(self, nfa_states: frozenset[int]) -> Row:
        self._spend(len(nfa_states))
        kinds, targets = self.nfa.kinds, self.nfa.targets
        leading = [nfa_state for nfa_state in nfa_states if kinds[nfa_state] >= 0]
        if len(leading) == 1:  # as almost everywhere in long chains
            (nfa_state,) = leading
            return dict.fromkeys(self.members[kinds[nfa_state]], self._state((targets[nfa_state],)))
        cells: dict[int, list[int]] = defaultdict(list)
        for nfa_state in leading:
            for member in self.members[kinds[nfa_state]]:
                cells[member].append(targets[nfa_state])
        return {member: self._state(tuple(cells[member])) for member in sorted(cells)}

    def _state(self, to: tuple[int, ...]) -> int:
        """The state of being in all these places."""
        if (known := self.after.get(to)) is not None:
            return known
        first, *others = to
        nfa_states = self._closure(first)
        if others:
            nfa_states = nfa_states.union(*map(self._closure, others))
        state = self.states.setdefault(nfa_states, len(self.states))
        if state == len(self.queue):
            self.queue.append(nfa_states)
            self.meter.check_limit(state, self.meter.limits.states, "states")
        self._spend(len(to) + len(nfa_states))
        self.after[to] = state
        return state

    def _closure(self, nfa_state: int) -> frozenset[int]:
        """The places that are reached from here without a character and lead on, or are the end."""
        found = self.closures.get(nfa_state)
        if found is None and not self.nfa.empty[nfa_state]:
            found = self.closures[nfa_state] = frozenset((nfa_state,))
        if found is None:
            seen = {nfa_state}
            stack = [nfa_state]
            while stack:
                fresh = [to for to in self.nfa.empty[stack.pop()] if to not in seen]
                seen.update(fresh)
                stack += fresh
            self._spend(len(seen))
            found = frozenset(p for p in seen if self.nfa.kinds[p] >= 0 or p == self.nfa.end)
            self.closures[nfa_state] = found
        return found

    def _spend(self, work: int) -> None:
        self.work += 1 + work
        self.meter.check_limit(self.work, self.meter.limits.work, "places visited")
        if self.work >= self.check_at:
            self.check_at = self.work + _CHECK_EVERY
            self.meter.check_time()
