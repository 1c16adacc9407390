"""A pattern's parse tree as an automaton that may be in many places at once, and back to one.

Knows nothing of bytes: its alphabet are classes of characters. The tree is interegular's; a node
is told by what it has: `options`, `parts`, a `base` with `min` and `max`, or `chars`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

from .limits import Meter

Row: TypeAlias = dict[int, int]
_CHECK_EVERY = 4096


class Nfa:
    """Places, built from the end of the pattern to its start.

    kinds, targets: [places] by a character of which set each leads on, and where; -1 by none.
    empty: [places] for each, where it leads without a character.
    """

    def __init__(self) -> None:
        self.kinds, self.targets = [-1], [-1]  # no object for each: they may be millions
        self.empty: list[tuple[int, ...]] = [()]
        self.end = 0

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
    """Writes a parse tree into an `Nfa`.

    spell: a mark's character -> the sets that it stands for, by number.
    """

    def __init__(self, spell: Callable[[str], tuple[int, ...]], meter: Meter) -> None:
        self.nfa = Nfa()
        self._spell = spell
        self._meter = meter

    def build(self, tree: Any) -> int:
        """The place where the tree begins, once it is written. Raises InvalidCall."""
        cap = self._meter.limits.positions
        self._meter.hold(self._size(tree), cap, "positions once counts are written out")
        return self._write(tree, self.nfa.end)

    def _size(self, node: Any) -> int:
        match node:
            case object(options=nodes) | object(parts=nodes):
                return 1 + sum(map(self._size, nodes))
            case object(base=base, min=low, max=high):
                return 1 + self._size(base) * int(max(low + (high is None), high or 0, 1))
            case object(chars=chars):
                return len(self._spell(next(iter(chars))))
        raise AssertionError(f"interegular made a node of an unknown kind: {node!r}")

    def _write(self, node: Any, end: int) -> int:
        """The place from which the node leads to `end`."""
        match node:
            case object(options=options):
                starts = [self._write(option, end) for option in options]
                return starts[0] if len(starts) == 1 else self.nfa.fork(*starts)
            case object(parts=parts):
                for part in reversed(parts):
                    end = self._write(part, end)
                return end
            case object(base=base, min=low, max=high):
                return self._repeat(base, low, high, end)
        for kind in reversed(self._spell(next(iter(node.chars)))):
            end = self.nfa.arc(kind, end)
        return end

    def _repeat(self, base: Any, low: int, high: int | None, end: int) -> int:
        place = end
        if high is None:
            place = self.nfa.fork(end)
            self.nfa.empty[place] += (self._write(base, place),)
        for _ in range((high or low) - low):
            place = self.nfa.fork(self._write(base, place), end)
        for index in range(low):
            place = self._write(base, place)
            if index % _CHECK_EVERY == 0:
                self._meter.check_time()
        return place


def determinize(
    nfa: Nfa, start: int, members: list[list[int]], meter: Meter
) -> tuple[list[Row], list[bool]]:
    """One state for each combination of places that can be occupied at once.

    Returns rows (class -> state, ascending classes) and which states accept. State 0 is dead, 1 is
    where it starts. members: for each set the classes that it is made of. Raises InvalidCall.
    """
    return _Subsets(nfa, members, meter).run(start)


class _Subsets:
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
        self._state((start,))
        rows = [self._row(places) for places in self.queue]  # grows while it is walked
        return rows, [self.nfa.end in places for places in self.queue]

    def _row(self, places: frozenset[int]) -> Row:
        self._spend(len(places))
        kinds, targets = self.nfa.kinds, self.nfa.targets
        leading = [place for place in places if kinds[place] >= 0]
        if len(leading) == 1:  # as almost everywhere in long chains
            (place,) = leading
            return dict.fromkeys(self.members[kinds[place]], self._state((targets[place],)))
        cells: dict[int, list[int]] = defaultdict(list)
        for place in leading:
            for member in self.members[kinds[place]]:
                cells[member].append(targets[place])
        return {member: self._state(tuple(cells[member])) for member in sorted(cells)}

    def _state(self, to: tuple[int, ...]) -> int:
        """The state of being in all these places."""
        if (known := self.after.get(to)) is not None:
            return known
        first, *others = to
        places = self._closure(first)
        if others:
            places = places.union(*map(self._closure, others))
        state = self.states.setdefault(places, len(self.states))
        if state == len(self.queue):
            self.queue.append(places)
            self.meter.hold(state, self.meter.limits.states, "states")
        self._spend(len(to) + len(places))
        self.after[to] = state
        return state

    def _closure(self, place: int) -> frozenset[int]:
        """The places that are reached from here without a character and lead on, or are the end."""
        found = self.closures.get(place)
        if found is None and not self.nfa.empty[place]:
            found = self.closures[place] = frozenset((place,))
        if found is None:
            seen = {place}
            stack = [place]
            while stack:
                fresh = [to for to in self.nfa.empty[stack.pop()] if to not in seen]
                seen.update(fresh)
                stack += fresh
            self._spend(len(seen))
            found = frozenset(p for p in seen if self.nfa.kinds[p] >= 0 or p == self.nfa.end)
            self.closures[place] = found
        return found

    def _spend(self, work: int) -> None:
        self.work += 1 + work
        self.meter.hold(self.work, self.meter.limits.work, "places visited")
        if self.work >= self.check_at:
            self.check_at = self.work + _CHECK_EVERY
            self.meter.check_time()
