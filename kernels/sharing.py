"""Finds, in the slot table alone, what attention can read once for many.

A run is a stretch of cached tokens that several sequences have at the same positions: a shared root
(paper, section 3), or a branch below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .interface import Ints, Past

MIN_SAVED_READS = 768  # token reads that a run must save: about the cost of a work item
MIN_SAVED_READS_LIGHT = 1536  # the same where every sequence decodes one token
READS_LIGHT = 3  # such reads that cost as much as reading a token of a run once


@dataclass(frozen=True, slots=True)
class Run:
    """Positions start:end of all `sequences` (indices, ascending), which lie in the same slots."""

    sequences: tuple[int, ...]
    start: int
    end: int
    slots: Ints


def find_runs(past: Past, is_light: npt.NDArray[np.bool_] | None = None) -> Iterator[Run]:
    """The runs that save enough token reads. The runs of one sequence cover a prefix of its cached
    tokens without gaps, and come in order of their positions.

    is_light: [S] which sequences read their keys for a single token; None: none."""
    light = [False] * len(past.rows) if is_light is None else is_light.tolist()
    rows, starts = past.rows.tolist(), past.starts.tolist()
    groups = [(list(range(len(rows))), 0, 0)]  # have the same slots below `agreed`
    while groups:
        group, start, agreed = groups.pop()  # start: what runs cover
        for sequences in _by_slot(past.table, rows, starts, group, agreed):
            num, covered = len(sequences), start
            threshold, num_reads = MIN_SAVED_READS, 1
            if all(light[s] for s in sequences):
                threshold, num_reads = MIN_SAVED_READS_LIGHT, READS_LIGHT
            if num == 1 or num * (max(starts[s] for s in sequences) - covered) < threshold:
                continue
            end = min(starts[s] for s in sequences)
            end = _end_of_agreement(past.table, [rows[s] for s in sequences], agreed, end)
            if (num - num_reads) * (end - covered) >= threshold:
                slots = past.table[rows[sequences[0]], covered:end].copy()
                yield Run(tuple(sequences), covered, end, slots)
                covered = end
            groups.append((sequences, covered, end))


def _end_of_agreement(table: Ints, rows: list[int], agreed: int, end: int) -> int:
    """The first position up to `end` at which these read different slots, which they do not at
    `agreed`; found by bisection, as they never agree again."""

    def agree(position: int) -> bool:
        slots = table[rows, position]
        return bool((slots == slots[0]).all())

    if agree(end - 1):
        return end
    low, high = agreed, end - 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if agree(middle) else (low, middle)
    return high


def _by_slot(
    table: Ints, rows: list[int], starts: list[int], group: list[int], agreed: int
) -> Iterator[list[int]]:
    """The sequences that go on behind what they agree on, split by their slots there."""
    going_on = [s for s in group if starts[s] > agreed]
    parts: dict[int, list[int]] = {}
    slots = table[[rows[s] for s in going_on], agreed].tolist() if going_on else []
    for s, slot in zip(going_on, slots, strict=True):
        parts.setdefault(slot, []).append(s)
    yield from parts.values()
