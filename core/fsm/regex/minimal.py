"""The smallest automaton of the same language.

States are merged from the end of the language to its start, one strongly connected component
after another: a state outside loops is known by where it leads; a loop is first reduced in itself,
then compared with the loops already known. Long chains, which most constraints are made of, so
cost one look-up for each state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .limits import Meter
from .nfa import Row

Key: TypeAlias = tuple[bool, tuple[tuple[int, int], ...]]
Form: TypeAlias = tuple[Key, ...]
Cells: TypeAlias = npt.NDArray[np.intp]

MAX_FORM_WORK = 100_000


def minimize(
    rows: list[Row], accepting: list[bool], start: int, meter: Meter
) -> tuple[list[Row], list[bool], int]:
    """The same automaton with each state once, and its start.

    State 0 stays the dead one, and is every state from which nothing is accepted.
    """
    return _Minimizer(rows, accepting, meter).run(start)


class _Minimizer:
    """number: for each state that of its class in the result, -1 while it is not known."""

    def __init__(self, rows: list[Row], accepting: list[bool], meter: Meter) -> None:
        self.rows = rows
        self.accepting = accepting
        self.meter = meter
        self.number = [-1] * len(rows)
        self.keys: dict[Key, int] = {}
        self.loops: dict[Key, int] = {}
        self.forms: dict[Form, list[int]] = {}
        self.made: list[Row] = [{}]
        self.made_accepting = [False]

    def run(self, start: int) -> tuple[list[Row], list[bool], int]:
        for index, component in enumerate(components(self.rows, start)):
            if len(component) == 1:
                self.number[component[0]] = self._merged(component[0])
            elif self._is_live(component):
                self._merge_loop(component)
            else:
                for state in component:
                    self.number[state] = 0
            if index % 512 == 0:
                self.meter.check_time()
        return self.made, self.made_accepting, self.number[start]

    def _is_live(self, component: list[int]) -> bool:
        return any(
            self.accepting[state] or any(self.number[to] > 0 for to in self.rows[state].values())
            for state in component
        )

    def _merged(self, state: int) -> int:
        """The class of a state in no loop but one that it makes alone, which shows as -1."""
        key = accepts, edges = self._key(state)
        if not accepts and all(to < 0 for _, to in edges):
            return 0
        is_loop = any(to < 0 for _, to in edges)
        known = (self.loops if is_loop else self.keys).get(key)
        if known is None:
            known = self._make(accepts)
            self._fill(known, {kind: known if to < 0 else to for kind, to in edges})
            if is_loop:
                self.loops[key] = known
        return known

    def _key(self, state: int) -> Key:
        """What the state is known by: whether it accepts, and where its live edges lead."""
        number = self.number
        edges = [(kind, number[to]) for kind, to in self.rows[state].items() if number[to]]
        return self.accepting[state], tuple(edges)

    def _merge_loop(self, component: list[int]) -> None:
        color = self._refine(component)
        leaders = {color[state]: state for state in component}
        forms = [self._form(leaders[c], color) for c in self._landmarks(leaders, color)]
        order, form = min(forms, key=lambda pair: pair[1])
        known = self.forms.get(form)
        if known is None:
            known = [self._make(self.accepting[leaders[c]]) for c in order]
            self.forms[form] = known
        index_of = dict(zip(order, known, strict=True))
        for state in component:
            self.number[state] = index_of[color[state]]
        for c, made in index_of.items():
            if not self.made[made]:
                self._fill(made, dict(self._key(leaders[c])[1]))

    def _refine(self, component: list[int]) -> dict[int, int]:
        """The coarsest coloring in which states of one color lead to the same colors."""
        cells, outer = self._cells(component)
        color = np.array([self.accepting[state] for state in component], np.intp)
        num_colors = 0
        while num_colors < (num_colors := len(np.unique(color))):
            shown = np.concatenate([color, outer])
            for column in cells:
                pairs = color * len(shown) + shown[column]
                color = np.unique(pairs, return_inverse=True)[1].reshape(-1)
            self.meter.check_time()
        return dict(zip(component, color.tolist(), strict=True))

    def _cells(self, component: list[int]) -> tuple[Cells, Cells]:
        """[classes, states] where each state of a loop leads, as indices of an array: first the
        loop's own states, and then those outside, which the second array has."""
        index_of = {state: index for index, state in enumerate(component)}
        outside = {0: len(component)}
        width = 1 + max(kind for state in component for kind in self.rows[state])
        cells = np.full((width, len(component)), len(component))
        for line, state in zip(cells.T, component, strict=True):
            for kind, to in self.rows[state].items():
                if to in index_of:
                    line[kind] = index_of[to]
                else:
                    line[kind] = outside.setdefault(self.number[to], len(component) + len(outside))
        return np.unique(cells, axis=0), len(component) + np.arange(len(outside))

    def _colored(self, state: int, color: dict[int, int]) -> Key:
        """As `_key`, with edges that stay in the loop as negative colors."""
        number = self.number
        edges = [
            (kind, -1 - color[to] if to in color else number[to])
            for kind, to in self.rows[state].items()
            if to in color or number[to]
        ]
        return self.accepting[state], tuple(edges)

    def _landmarks(self, leaders: dict[int, int], color: dict[int, int]) -> list[int]:
        """The colors that are rarest by their own appearance; the same in any like loop."""
        by_appearance: dict[Key, list[int]] = {}
        for c, state in leaders.items():
            accepts, edges = self._colored(state, color)
            plain = tuple((kind, max(to, -1)) for kind, to in edges)
            by_appearance.setdefault((accepts, plain), []).append(c)
        _, _, rarest = min(
            (len(colors), appearance, colors) for appearance, colors in by_appearance.items()
        )
        return rarest[: max(1, MAX_FORM_WORK // len(leaders))]

    def _form(self, start: int, color: dict[int, int]) -> tuple[list[int], Form]:
        """Colors in the order in which they are visited from a state, and the loop in that
        order."""
        first = color[start]
        order = {first: 0}
        queue = [start]
        form: list[Key] = []
        for state in queue:
            edges = []
            for kind, to in self.rows[state].items():
                if to not in color:
                    if self.number[to]:
                        edges.append((kind, self.number[to]))
                    continue
                if color[to] not in order:
                    order[color[to]] = len(order)
                    queue.append(to)
                edges.append((kind, -1 - order[color[to]]))
            form.append((self.accepting[state], tuple(edges)))
        return list(order), tuple(form)

    def _make(self, accepts: bool) -> int:
        self.made.append({})
        self.made_accepting.append(accepts)
        return len(self.made) - 1

    def _fill(self, made: int, row: Row) -> None:
        self.made[made] = row
        self.keys[self.made_accepting[made], tuple(row.items())] = made


def components(rows: list[Row], start: int) -> Iterator[list[int]]:
    """Strongly connected components that `start` reaches, each after all that it leads to."""
    index, low, num_visited = [0] * len(rows), [0] * len(rows), 1  # 0: not met yet
    is_open = bytearray(len(rows))
    index[start] = low[start] = is_open[start] = 1
    open_states, path = [start], [(start, iter(rows[start].values()))]
    while path:
        state, edges = path[-1]
        for to in edges:
            if not index[to]:
                num_visited += 1
                index[to] = low[to] = num_visited
                is_open[to] = 1
                open_states.append(to)
                path.append((to, iter(rows[to].values())))
                break
            if is_open[to] and index[to] < low[state]:
                low[state] = index[to]
        else:
            path.pop()
            if path and low[state] < low[path[-1][0]]:
                low[path[-1][0]] = low[state]
            if low[state] == index[state]:
                bottom = len(open_states) - 1
                while open_states[bottom] != state:
                    bottom -= 1
                component = open_states[bottom:]
                del open_states[bottom:]
                for member in component:
                    is_open[member] = 0
                yield component
