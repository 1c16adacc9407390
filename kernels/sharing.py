"""Finds, in the slot table alone, what attention can read once for many, or without a copy.

A run is a stretch of cached tokens that one or more sequences have at the same positions: a shared
root (paper, section 3), a branch below it, or a long stretch of adjacent slots of one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .interface import Ints, Past

Flags = npt.NDArray[np.bool_]

MIN_SAVED_READS = 768  # token reads that a run must save: about the cost of a work item
MIN_SAVED_READS_LIGHT = (
    1536  # the same where all are single tokens that read in place, from near caches
)
READS_LIGHT = 3  # such reads that cost as much as reading a token of a run once


@dataclass(frozen=True, slots=True)
class Run:
    """Positions start:end of all `sequences` (indices, ascending), which lie in the same slots."""

    sequences: tuple[int, ...]
    start: int
    end: int
    slots: Ints

    @property
    def is_adjacent(self) -> bool:
        """Whether each slot is the one before plus one."""
        return bool(np.all(np.diff(self.slots) == 1))

    def saved(self, reads_in_place: bool, is_light: bool) -> int:
        """Token reads that are saved by reading this run once; and without a copy if it is
        adjacent, where keys are not read in place anyway. is_light: for single tokens only."""
        num_reads = int(reads_in_place or not self.is_adjacent)
        if is_light:
            num_reads = READS_LIGHT
        return (len(self.sequences) - num_reads) * (self.end - self.start)


class _Group(NamedTuple):
    """Sequences that have the same slots below position `agreed`, of which runs cover `covered`."""

    sequences: list[int]
    covered: int
    agreed: int


def find_runs(past: Past, is_light: Flags | None = None) -> Iterator[Run]:
    """The runs that save enough token reads. Those of one sequence cover a prefix of
    its cached tokens without gaps, and come in order of their positions.

    is_light: [S] given where keys are read in place, wherever they are: which sequences do so for
    a single token."""
    reads_in_place = is_light is not None
    light = [False] * len(past.rows) if is_light is None else is_light.tolist()
    rows, starts = past.rows.tolist(), past.starts.tolist()
    groups = [_Group(list(range(len(rows))), 0, 0)]
    while groups:
        group = groups.pop()
        for sequences in _by_slot(past.table, rows, starts, group):
            longest = max(starts[s] for s in sequences)
            if len(sequences) == 1 and reads_in_place:
                continue
            is_all_light = all(light[s] for s in sequences)
            threshold = MIN_SAVED_READS_LIGHT if is_all_light else MIN_SAVED_READS
            if len(sequences) * (longest - group.covered) < threshold:
                continue
            run = _leading_run(past.table, rows, starts, group, sequences)
            is_enough = run.saved(reads_in_place, is_all_light) >= threshold
            if is_enough:
                yield run
            if is_enough or len(sequences) > 1:
                covered = run.end if is_enough else group.covered
                groups.append(_Group(sequences, covered, run.end))


def _by_slot(table: Ints, rows: list[int], starts: list[int], group: _Group) -> Iterator[list[int]]:
    """The sequences that go on behind what they agree on, split by their slots there."""
    going_on = [s for s in group.sequences if starts[s] > group.agreed]
    if len(going_on) == 1:
        yield going_on
        return
    parts: dict[int, list[int]] = {}
    slots = table[[rows[s] for s in going_on], group.agreed].tolist()
    for s, slot in zip(going_on, slots, strict=True):
        parts.setdefault(slot, []).append(s)
    yield from parts.values()


def _leading_run(
    table: Ints, rows: list[int], starts: list[int], group: _Group, sequences: list[int]
) -> Run:
    """From what is covered: as far as several sequences agree, or one has adjacent slots."""
    end = min(starts[s] for s in sequences)
    first = table[rows[sequences[0]]]
    if len(sequences) == 1:
        breaks = np.diff(first[group.covered : end]) != 1
        length = _first_true(breaks) + 1
        return _run(sequences, group.covered, min(end, group.covered + length), first)
    block = table[[rows[s] for s in sequences[1:]], group.agreed : end]
    differs = (block != first[group.agreed : end]).any(axis=0)
    return _run(sequences, group.covered, group.agreed + _first_true(differs), first)


def _run(sequences: list[int], start: int, end: int, row: Ints) -> Run:
    return Run(tuple(sequences), start, end, row[start:end].copy())


def _first_true(flags: np.ndarray) -> int:
    """Index of the first true flag; their number, if none is."""
    index = int(flags.argmax()) if flags.size else 0
    return index if flags.size and flags[index] else flags.size
