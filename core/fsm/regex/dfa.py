"""A constraint as a deterministic automaton that reads bytes and can stop inside a character.

A state is an int: a state of the character automaton in its low STATE_BITS bits, and above them the
beginning of a character of which not all bytes have come (`utf8`), or 0. State 0 is dead; from
every other state the end of some match can be reached. The character automaton is minimal.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from . import utf8
from .limits import Meter
from .nfa import Row
from .partition import Partition

Ints: TypeAlias = npt.NDArray[np.intp]
Table: TypeAlias = npt.NDArray[np.unsignedinteger]

STATE_BITS = 20
STATE_MASK = (1 << STATE_BITS) - 1
DEAD = 0


class Dfa:
    """An automaton over UTF-8.

    table: [states, classes] state after a character of each class; row and column 0 are dead.
    accepting: [states] whether what has been read is a match.
    start: the state before anything is read.
    class_sizes, first_chars: [classes] how many characters, and the one that comes first.
    """

    def __init__(
        self,
        table: Table,
        accepting: npt.NDArray[np.bool_],
        start: int,
        partition: Partition,
    ) -> None:
        self.table = table
        self.accepting = accepting
        self.start = start
        self.partition = partition
        self.num_states, self.num_classes = table.shape
        ends = np.append(partition.starts[1:], 0x110000)
        self.class_sizes = np.bincount(
            partition.kinds, ends - partition.starts, self.num_classes
        ).astype(np.intp)
        self.first_chars = np.zeros(self.num_classes, np.intp)
        self.first_chars[partition.kinds[::-1]] = partition.starts[::-1]
        self._cells: Sequence[int] = memoryview(np.ascontiguousarray(table).reshape(-1).data)
        self._accepts: list[bool] = accepting.tolist()
        self._starts: list[int] = partition.starts.tolist()
        self._kinds: list[int] = partition.kinds.tolist()
        self._ascii = self.kinds_of(np.arange(0x80)).tolist()

    def kinds_of(self, code_points: npt.NDArray[np.integer]) -> Ints:
        """The class of each code point."""
        intervals = np.searchsorted(self.partition.starts, code_points, "right") - 1
        return self.partition.kinds[intervals]

    def is_accepting(self, state: int) -> bool:
        """Whether what led to this state is a match."""
        return state <= STATE_MASK and self._accepts[state]

    def after(self, state: int, kind: int) -> int:
        """The state after a character of this class; `state` is between characters."""
        to: int = self._cells[state * self.num_classes + kind]
        return to

    def step(self, state: int, byte: int) -> int:
        """The state after one more byte, or DEAD."""
        if state <= STATE_MASK:
            if byte < 0x80:
                return self.after(state, self._ascii[byte])
            return self._inside(state, utf8.lead(byte))
        prefix = state >> STATE_BITS
        state &= STATE_MASK
        if utf8.num_missing(prefix) > 1:
            return self._inside(state, utf8.follow(prefix, byte))
        char = utf8.code_point(prefix, byte)
        return DEAD if char < 0 else self.after(state, self._kinds[bisect(self._starts, char) - 1])

    def run(self, state: int, data: bytes) -> int:
        """The state after these bytes, or DEAD."""
        for byte in data:
            state = self.step(state, byte)
            if not state:
                break
        return state

    def matches(self, text: str) -> bool:
        """Whether the text as a whole is in the language."""
        return self.is_accepting(self.run(self.start, text.encode("utf-8", "surrogatepass")))

    def _inside(self, state: int, prefix: int) -> int:
        if not prefix:
            return DEAD
        start, end = utf8.span(prefix)
        low, high = bisect(self._starts, start) - 1, bisect(self._starts, end - 1)
        if not any(self.after(state, kind) for kind in set(self._kinds[low:high])):
            return DEAD
        return prefix << STATE_BITS | state


def assemble(
    rows: list[Row], accepting: list[bool], start: int, partition: Partition, meter: Meter
) -> Dfa:
    """Rows as a dense table, with classes merged that no state distinguishes."""
    num_classes = int(partition.kinds.max()) + 1
    meter.check_limit(len(rows) - 1, min(meter.limits.states, STATE_MASK), "states")
    meter.check_limit(len(rows) * num_classes, meter.limits.cells, "cells (states times classes)")
    table = np.zeros((len(rows), num_classes), np.min_scalar_type(len(rows)))
    counts = [len(row) for row in rows]
    states = np.repeat(np.arange(len(rows)), counts)
    kinds = np.fromiter((kind for row in rows for kind in row), np.intp, len(states))
    table[states, kinds] = np.fromiter((to for row in rows for to in row.values()), table.dtype)
    columns, merged = np.unique(table, axis=1, return_inverse=True)
    partition = Partition(partition.starts, merged.reshape(-1)[partition.kinds])
    return Dfa(np.ascontiguousarray(columns), np.array(accepting), start, partition)
